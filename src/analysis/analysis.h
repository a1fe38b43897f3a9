#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/trace/reader.h"

namespace marey::analysis {

/// Where an event lies: the units and the innermost stage in which it begins. Unset: none.
struct Place {
  std::optional<std::int64_t> train_step;
  std::optional<std::int64_t> mini_batch;
  std::optional<std::int64_t> micro_batch;
  std::string_view stage;
};

/// The place of every event of the trace, in the order of its events. A unit holds [begin, end); a skeleton range's place
/// includes itself. O(n) over sorted events.
std::vector<Place> places_of(const trace::Trace& trace);

/// One unit of the skeleton, with what happened in it.
struct UnitRow {
  schedule::Unit unit = schedule::Unit::kMiniBatch;
  std::int64_t number = 0;
  Place place;  ///< with the unit itself
  std::int64_t begin_ns = 0;
  std::int64_t duration_ns = 0;
  bool truncated = false;
  std::string role;  ///< whose unit: of the trace, like host, pid and rank
  std::string host;
  std::int64_t pid = 0;
  std::int64_t rank = 0;
  std::uint64_t events = 0;  ///< detail events that begin in it
  /// Time of stages inside the unit; for a unit inside a stage that stage, with the unit's whole time.
  std::map<std::string, std::int64_t> stage_ns;
  /// Time of the detail ranges that begin in the unit, by category, cut at the unit's end: of each thread the outermost ones of
  /// the category, so that nesting is counted once.
  std::map<std::string, std::int64_t> category_ns;
};

/// Units of one kind (nullopt: all kinds) in time order.
std::vector<UnitRow> unit_table(const trace::Trace& trace, std::optional<schedule::Unit> unit);

/// Time of all events of one name and category.
struct NameRow {
  std::string name;
  std::string category;
  std::uint64_t count = 0;
  std::int64_t total_ns = 0;  ///< nested ranges of one name count each
  std::int64_t self_ns = 0;   ///< without the direct children on the same track
  std::int64_t min_ns = 0;
  std::int64_t max_ns = 0;
  [[nodiscard]] std::int64_t mean_ns() const { return count == 0 ? 0 : total_ns / static_cast<std::int64_t>(count); }
};

enum class TierFilter { kAll, kDetail, kSkeleton };
/// By falling total, then name. Marks count with time 0.
std::vector<NameRow> name_table(const trace::Trace& trace, TierFilter tier);

/// The same of several traces. Of one process and role each skeleton event counts once, however many traces hold it; detail
/// events count in every trace they lie in (windows of two roles of a process may overlap).
std::vector<NameRow> joined_name_table(const std::vector<trace::Trace>& traces, TierFilter tier);

/// A train step's whole skeleton lies in the lease's skeleton trace; a window holds it up to its own end. For traces of one
/// folder this takes, per process and role, each unit's whole range from the trace that has it, and adds up the events and
/// category times of the windows. `traces` in any order; result by rank, host, pid and role, then in time order.
std::vector<UnitRow> joined_unit_table(const std::vector<trace::Trace>& traces, std::optional<schedule::Unit> unit);

}  // namespace marey::analysis
