#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/schedule/schedule.h"

namespace marey::trace {

/// Events that existed and were not kept.
struct Loss {
  std::string reason;  ///< "lane_full", "name_table_full", "late", "disk", ...
  std::uint64_t count = 0;
  std::string source;         ///< "host", "torch", ... or "" for all
  std::int64_t begin_ns = 0;  ///< trace clock (CLOCK_MONOTONIC)
  std::int64_t end_ns = 0;
};

/// A source as it was while the trace was recorded.
struct SourceState {
  std::string name;
  std::string state;  ///< "armed", "idle", "unavailable", "failed"
  std::string reason;
};

enum class TraceKind { kWindow, kSkeleton };

/// The one metadata record of a trace. Written when the file is created and again, final, in the trailer.
struct TraceInfo {
  TraceKind kind = TraceKind::kWindow;
  std::string marey_version;
  std::string job;
  std::string host;
  std::int64_t pid = 0;
  std::int64_t rank = 0;
  std::int64_t world_size = 1;
  std::string parallel;  ///< "tp1-pp0-dp2" or ""
  std::string role;
  std::string stage;  ///< scheduled stage the window lies in, or ""
  std::optional<std::int64_t> train_step;
  std::optional<schedule::Unit> unit;  ///< unset: no schedule
  std::optional<std::int64_t> first_unit;
  std::optional<std::int64_t> last_unit;  ///< last unit with events in the file
  std::int64_t recorded_units = 0;        ///< whole units in the file
  std::int64_t planned_units = 0;         ///< 0: no schedule
  bool complete = false;
  std::string end_reason;  ///< "" while open; "schedule", "stop", "stage_end", "exception", "exit", "fork", ...
  schedule::Schedule schedule;
  std::vector<std::string> contents;
  std::vector<SourceState> sources;
  std::vector<Loss> losses;
  std::uint64_t events = 0;            ///< ranges and marks in the file, both tiers; final in the trailer
  std::int64_t begin_ns = 0;           ///< trace clock
  std::int64_t end_ns = 0;             ///< trace clock; 0 while open
  std::int64_t begin_unix_ns = 0;      ///< CLOCK_REALTIME at begin_ns
  double ticks_per_ns = 0;             ///< cycle counter rate used for this trace
  std::int64_t clock_residual_ns = 0;  ///< counter against CLOCK_MONOTONIC at the end of the window
  double event_cost_ns = 0;            ///< cost of one recorded range as calibrated in this process
  std::string id;                      ///< short random id, also in the file name
};

/// Final file name (no folder): see design §7. `local_time_ns` is CLOCK_REALTIME of the window's begin.
std::string file_name(const TraceInfo& info);

}  // namespace marey::trace
