#include "src/analysis/analysis.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <tuple>

#include "src/event/categories.h"

namespace marey::analysis {
namespace {

using schedule::Unit;
using trace::Event;
using trace::Trace;

/// Unit and number of a unit's range; nullopt for what is not one.
struct UnitId {
  Unit unit;
  std::int64_t number;
};
std::optional<UnitId> unit_of(const Trace& trace, const Event& event) {
  if (event.category != event::kUnitCategory) return std::nullopt;
  std::optional<Unit> unit;
  std::optional<std::int64_t> number;
  for (const trace::ArgValue& arg : trace.args_of(event)) {
    if (arg.key == "unit" && arg.type == trace::ArgValue::Type::kString) unit = schedule::parse_unit(arg.string_value);
    if (arg.key == "index" && arg.type == trace::ArgValue::Type::kInt) number = arg.int_value;
  }
  if (!unit || !number) return std::nullopt;
  return UnitId{*unit, *number};
}

void enter(const Trace& trace, const Event& event, Place* place) {
  if (event.category == event::kStageCategory) {
    place->stage = event.name;
    return;
  }
  const auto id = unit_of(trace, event);
  if (!id) return;
  switch (id->unit) {
    case Unit::kTrainStep: place->train_step = id->number; break;
    case Unit::kMiniBatch: place->mini_batch = id->number; break;
    case Unit::kMicroBatch: place->micro_batch = id->number; break;
  }
}

std::int64_t end_of(const Event& event) { return event.begin_ns + event.duration_ns; }

/// Sums of times of damaged traces may not fit: they stay at the largest number.
void add_ns(std::int64_t* sum, std::int64_t ns) {
  if (__builtin_add_overflow(*sum, ns, sum)) *sum = INT64_MAX;
}

/// Calls run(first, last) for each stretch [first, last) of events that begin at one time. The order within it says nothing
/// across tracks: an event that begins with a unit may come before the unit's own.
template <typename Run>
void for_each_instant(const Trace& trace, Run run) {
  const std::vector<Event>& events = trace.events;
  for (std::size_t first = 0, last = 0; first < events.size(); first = last) {
    while (last < events.size() && events[last].begin_ns == events[first].begin_ns) ++last;
    run(first, last);
  }
}

/// Each trace has its own map from ticks to time: one event's begin may differ by microseconds between two traces.
constexpr std::int64_t kSameBeginNs = 100'000;

using Owner = std::tuple<std::string, std::int64_t, std::string>;  // host, pid, role
Owner owner_of(const Trace& trace) { return {trace.info.host, trace.info.pid, trace.info.role}; }

using NameRows = std::map<std::pair<std::string_view, std::string_view>, NameRow>;

template <typename Keep>
void add_names(const Trace& trace, TierFilter tier, Keep keep, NameRows* rows) {
  std::vector<std::int64_t> children_ns(trace.events.size(), 0);
  for (const Event& event : trace.events) {
    if (event.parent != trace::kNoParent) add_ns(&children_ns[event.parent], event.duration_ns);
  }
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (tier == TierFilter::kDetail && event.tier != trace::Tier::kDetail) continue;
    if (tier == TierFilter::kSkeleton && event.tier != trace::Tier::kSkeleton) continue;
    if (!keep(event)) continue;
    NameRow& row = (*rows)[{event.name, event.category}];
    row.min_ns = row.count == 0 ? event.duration_ns : std::min(row.min_ns, event.duration_ns);
    row.max_ns = std::max(row.max_ns, event.duration_ns);
    ++row.count;
    add_ns(&row.total_ns, event.duration_ns);
    add_ns(&row.self_ns, std::max<std::int64_t>(0, event.duration_ns - children_ns[i]));
  }
}

std::vector<NameRow> sorted_names(NameRows rows) {
  std::vector<NameRow> table;
  table.reserve(rows.size());
  for (auto& [key, row] : rows) {
    row.name = key.first;
    row.category = key.second;
    table.push_back(std::move(row));
  }
  std::stable_sort(table.begin(), table.end(), [](const NameRow& a, const NameRow& b) { return a.total_ns > b.total_ns; });
  return table;
}

}  // namespace

std::vector<Place> places_of(const Trace& trace) {
  std::vector<Place> places(trace.events.size());
  std::vector<std::size_t> open;  // skeleton ranges that are open at the sweep's time, outermost first
  const auto place_now = [&] {
    Place place;
    for (const std::size_t index : open) enter(trace, trace.events[index], &place);
    return place;
  };
  for_each_instant(trace, [&](std::size_t first, std::size_t last) {
    std::erase_if(open, [&](std::size_t index) { return end_of(trace.events[index]) <= trace.events[first].begin_ns; });
    for (std::size_t i = first; i < last; ++i) {
      const Event& event = trace.events[i];
      if (event.tier != trace::Tier::kSkeleton) continue;
      places[i] = place_now();
      enter(trace, event, &places[i]);
      if (event.duration_ns > 0) open.push_back(i);
    }
    const Place here = place_now();
    for (std::size_t i = first; i < last; ++i) {
      if (trace.events[i].tier == trace::Tier::kDetail) places[i] = here;
    }
  });
  return places;
}

std::vector<UnitRow> unit_table(const Trace& trace, std::optional<Unit> wanted) {
  const std::vector<Place> places = places_of(trace);
  std::vector<UnitRow> rows;
  std::vector<std::size_t> open;    // rows whose unit is open at the sweep's time
  std::vector<std::size_t> stages;  // events of the stages that are open then
  const auto row_end = [&rows](std::size_t row) { return rows[row].begin_ns + rows[row].duration_ns; };

  const auto skeleton_event = [&](std::size_t i) {
    const Event& event = trace.events[i];
    if (event.category == event::kStageCategory && event.kind == trace::EventKind::kRange) {
      for (const std::size_t row : open) {
        add_ns(&rows[row].stage_ns[std::string(event.name)], std::min(end_of(event), row_end(row)) - event.begin_ns);
      }
      stages.push_back(i);
      return;
    }
    const auto id = unit_of(trace, event);
    if (!id || event.kind != trace::EventKind::kRange) return;
    UnitRow row;
    row.unit = id->unit;
    row.number = id->number;
    row.place = places[i];
    row.begin_ns = event.begin_ns;
    row.duration_ns = event.duration_ns;
    row.truncated = event.truncated;
    row.role = trace.info.role;
    row.host = trace.info.host;
    row.pid = trace.info.pid;
    row.rank = trace.info.rank;
    if (!stages.empty()) {
      const Event& stage = trace.events[stages.back()];
      add_ns(&row.stage_ns[std::string(stage.name)], std::min(end_of(stage), end_of(event)) - event.begin_ns);
    }
    open.push_back(rows.size());
    rows.push_back(std::move(row));
  };

  const auto detail_event = [&](const Event& event) {
    for (const std::size_t row : open) {
      if (row_end(row) <= event.begin_ns) continue;  // a unit without a length holds nothing
      ++rows[row].events;
      // Only the outermost range of its category on its track counts, so that nesting is counted once. What began before the
      // unit belongs to an earlier one, and so does all above it.
      bool outermost = true;
      for (std::uint32_t parent = event.parent; parent != trace::kNoParent; parent = trace.events[parent].parent) {
        const Event& above = trace.events[parent];
        if (above.begin_ns < rows[row].begin_ns) break;
        if (above.category == event.category) {
          outermost = false;
          break;
        }
      }
      if (outermost) {
        add_ns(&rows[row].category_ns[std::string(event.category)], std::min(end_of(event), row_end(row)) - event.begin_ns);
      }
    }
  };

  for_each_instant(trace, [&](std::size_t first, std::size_t last) {
    const std::int64_t now_ns = trace.events[first].begin_ns;
    std::erase_if(open, [&](std::size_t row) { return row_end(row) <= now_ns; });
    std::erase_if(stages, [&](std::size_t index) { return end_of(trace.events[index]) <= now_ns; });
    for (std::size_t i = first; i < last; ++i) {
      if (trace.events[i].tier == trace::Tier::kSkeleton) skeleton_event(i);
    }
    for (std::size_t i = first; i < last; ++i) {
      if (trace.events[i].tier == trace::Tier::kDetail) detail_event(trace.events[i]);
    }
  });
  if (wanted) std::erase_if(rows, [&wanted](const UnitRow& row) { return row.unit != *wanted; });
  return rows;
}

std::vector<NameRow> name_table(const Trace& trace, TierFilter tier) {
  NameRows rows;
  add_names(trace, tier, [](const Event&) { return true; }, &rows);
  return sorted_names(std::move(rows));
}

std::vector<NameRow> joined_name_table(const std::vector<Trace>& traces, TierFilter tier) {
  // The stretch of skeleton that a trace holds.
  struct Stretch {
    const Trace* trace;
    std::int64_t begin_ns = INT64_MAX;
    std::int64_t end_ns = INT64_MIN;
  };
  std::vector<Stretch> stretches;
  for (const Trace& trace : traces) {
    Stretch& stretch = stretches.emplace_back(Stretch{&trace});
    for (const Event& event : trace.events) {
      if (event.tier != trace::Tier::kSkeleton) continue;
      stretch.begin_ns = std::min(stretch.begin_ns, event.begin_ns);
      stretch.end_ns = std::max(stretch.end_ns, end_of(event));
    }
  }
  // The one that reaches furthest counts; a window's skeleton counts only where no such trace has it.
  std::stable_sort(stretches.begin(), stretches.end(), [](const Stretch& a, const Stretch& b) {
    if (a.end_ns != b.end_ns) return a.end_ns > b.end_ns;
    return a.trace->info.kind == trace::TraceKind::kSkeleton && b.trace->info.kind != trace::TraceKind::kSkeleton;
  });
  NameRows rows;
  std::map<Owner, std::vector<Stretch>> counted;
  for (const Stretch& stretch : stretches) {
    std::vector<Stretch>& known = counted[owner_of(*stretch.trace)];
    const auto keep = [&](const Event& event) {
      if (event.tier == trace::Tier::kDetail || stretch.trace->info.kind == trace::TraceKind::kSkeleton) return true;
      return std::none_of(known.begin(), known.end(), [&event](const Stretch& other) {
        return other.begin_ns <= event.begin_ns + kSameBeginNs && event.begin_ns < other.end_ns;
      });
    };
    add_names(*stretch.trace, tier, keep, &rows);
    if (stretch.begin_ns <= stretch.end_ns) known.push_back(stretch);
  }
  return sorted_names(std::move(rows));
}

std::vector<UnitRow> joined_unit_table(const std::vector<Trace>& traces, std::optional<Unit> unit) {
  // One unit of one process and role; units of one number in two leases or stages begin at different times.
  using Key = std::tuple<Owner, int, std::int64_t, std::int64_t, std::int64_t, std::string_view>;
  struct Entry {
    UnitRow row;
    std::size_t last_trace;  ///< one trace never holds a unit twice
  };
  constexpr std::int64_t kNone = INT64_MIN;
  std::multimap<Key, Entry> entries;
  // Skeleton traces first: of two whole ranges theirs counts, in whatever order the traces come.
  std::vector<std::size_t> order(traces.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(), [&traces](std::size_t index) { return traces[index].info.kind == trace::TraceKind::kSkeleton; });
  for (const std::size_t index : order) {
    for (UnitRow& row : unit_table(traces[index], unit)) {
      const Place& place = row.place;
      const Key key{owner_of(traces[index]), static_cast<int>(row.unit), place.train_step.value_or(kNone), place.mini_batch.value_or(kNone),
                    place.micro_batch.value_or(kNone), place.stage};
      Entry* same = nullptr;
      std::int64_t apart_ns = kSameBeginNs + 1;
      for (auto [at, end] = entries.equal_range(key); at != end; ++at) {
        const std::int64_t ns = std::abs(at->second.row.begin_ns - row.begin_ns);
        if (at->second.last_trace == index || ns >= apart_ns) continue;
        same = &at->second;
        apart_ns = ns;
      }
      if (same == nullptr) {
        entries.emplace(key, Entry{std::move(row), index});
        continue;
      }
      same->last_trace = index;
      // The whole range wins over one that a window's end cut, the longer of two cut ones over the shorter.
      UnitRow& known = same->row;
      if (known.truncated && (!row.truncated || row.duration_ns > known.duration_ns)) {
        known.begin_ns = row.begin_ns;
        known.duration_ns = row.duration_ns;
        known.truncated = row.truncated;
        known.stage_ns = row.stage_ns;
      }
      // Windows of one profiler do not overlap: a train step holds what each of them recorded.
      known.events += row.events;
      for (const auto& [category, ns] : row.category_ns) add_ns(&known.category_ns[category], ns);
    }
  }
  std::vector<UnitRow> table;
  table.reserve(entries.size());
  for (auto& [key, entry] : entries) table.push_back(std::move(entry.row));
  std::stable_sort(table.begin(), table.end(), [](const UnitRow& a, const UnitRow& b) {
    return std::tie(a.rank, a.host, a.pid, a.role, a.begin_ns, a.unit) < std::tie(b.rank, b.host, b.pid, b.role, b.begin_ns, b.unit);
  });
  return table;
}

}  // namespace marey::analysis
