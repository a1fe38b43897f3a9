#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"
#include "src/trace/trace_info.h"

namespace marey::trace {

enum class TraceState {
  kSealed,   ///< the trailer is there and nothing is wrong
  kPartial,  ///< the writer died or is still writing: whole packets up to the cut
  kDamaged,  ///< bytes that no writer of Marey's leaves; what could be read was kept
};
std::string_view state_name(TraceState state);

enum class Tier : std::uint8_t { kSkeleton, kDetail };
enum class EventKind : std::uint8_t { kRange, kMark };

/// An argument as read. Strings are views into the trace.
struct ArgValue {
  enum class Type : std::uint8_t { kInt, kDouble, kBool, kString };
  std::string_view key;
  Type type = Type::kInt;
  std::int64_t int_value = 0;
  double double_value = 0;
  std::string_view string_value;
};

struct Track {
  std::uint64_t uuid = 0;
  std::string name;  ///< thread name, or the track's
  std::int64_t pid = 0;
  std::int64_t tid = 0;  ///< 0: not a thread
  bool is_thread = false;
};

inline constexpr std::uint32_t kNoParent = UINT32_MAX;

/// One range or mark. Indices refer to Trace's vectors.
struct Event {
  std::int64_t begin_ns = 0;     ///< trace clock (CLOCK_MONOTONIC of the host)
  std::int64_t duration_ns = 0;  ///< >= 0; for marks 0
  std::string_view name;
  std::string_view category;
  std::uint32_t track = 0;
  std::uint32_t parent = kNoParent;  ///< enclosing range on the same track
  std::uint32_t first_arg = 0;
  std::uint16_t arg_count = 0;
  std::uint16_t depth = 0;  ///< 0: outermost on its track
  std::uint64_t flow_id = 0;
  std::uint64_t terminating_flow_id = 0;
  Tier tier = Tier::kDetail;
  EventKind kind = EventKind::kRange;
  bool truncated = false;  ///< open when the window closed or the file was cut
};

/// A whole trace in memory.
struct Trace {
  std::string path;
  std::uint64_t bytes = 0;
  TraceState state = TraceState::kSealed;
  std::string state_reason;  ///< for partial and damaged: what is missing or wrong, and at which byte
  TraceInfo info;
  std::vector<Track> tracks;
  std::vector<Event> events;  ///< by begin_ns; a parent before its children
  std::vector<ArgValue> args;

  /// Owns the bytes behind every view above.
  std::vector<std::vector<char>> storage;

  [[nodiscard]] std::span<const ArgValue> args_of(const Event& event) const {
    return std::span<const ArgValue>(args).subspan(event.first_arg, event.arg_count);
  }
};

struct ReadOptions {
  bool info_only = false;                                          ///< metadata, state and counts; events stay empty
  std::uint64_t max_uncompressed_bytes = std::uint64_t{16} << 30;  ///< a bound on what a hostile file can make us hold
};

/// Reads a sealed, partial or damaged trace. Fails only when the file cannot be read or holds nothing of Marey's.
Result<Trace> read_trace(const std::string& path, const ReadOptions& options = {});
/// The same from memory; `path` is for messages.
Result<Trace> read_trace_bytes(std::span<const char> bytes, const std::string& path, const ReadOptions& options = {});

/// Trace files (.pftrace, .pftrace.partial) at a path: itself, or for a folder all below it, sorted by name.
Result<std::vector<std::string>> find_traces(const std::string& path);

}  // namespace marey::trace
