#include "src/analysis/analysis.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

#include "src/event/categories.h"

namespace marey::analysis {
namespace {

using schedule::Unit;
using trace::Event;
using trace::Trace;

struct OpenRange {
  std::int64_t end_ns;
  std::uint32_t event;
};

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

}  // namespace

std::vector<Place> places_of(const Trace& trace) {
  std::vector<Place> places(trace.events.size());
  // Skeleton ranges that are open at the sweep's time, outermost first, each with the place inside it.
  std::vector<std::pair<OpenRange, Place>> open;
  for (std::uint32_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    std::erase_if(open, [&event](const auto& range) { return range.first.end_ns <= event.begin_ns; });
    Place place = open.empty() ? Place{} : open.back().second;
    if (event.tier == trace::Tier::kSkeleton) {
      enter(trace, event, &place);
      if (event.kind == trace::EventKind::kRange && event.duration_ns > 0) open.push_back({{end_of(event), i}, place});
    }
    places[i] = place;
  }
  // An event at the very begin of a unit may come before it in file order (another track, equal time).
  for (std::size_t i = trace.events.size(); i-- > 1;) {
    const Event& event = trace.events[i - 1];
    const Event& next = trace.events[i];
    if (event.tier == trace::Tier::kDetail && event.begin_ns == next.begin_ns) places[i - 1] = places[i];
  }
  return places;
}

std::vector<UnitRow> unit_table(const Trace& trace, std::optional<Unit> wanted) {
  const std::vector<Place> places = places_of(trace);
  std::vector<UnitRow> rows;
  std::vector<std::size_t> open;  // rows whose unit is open at the sweep's time
  struct OpenStage {
    std::int64_t end_ns;
    std::string_view name;
  };
  std::vector<OpenStage> stages;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    const auto row_end = [&rows](std::size_t row) { return rows[row].begin_ns + rows[row].duration_ns; };
    std::erase_if(open, [&](std::size_t row) { return row_end(row) <= event.begin_ns; });
    std::erase_if(stages, [&event](const OpenStage& stage) { return stage.end_ns <= event.begin_ns; });
    if (event.tier == trace::Tier::kSkeleton) {
      if (event.category == event::kStageCategory) {
        for (const std::size_t row : open) {
          rows[row].stage_ns[std::string(event.name)] += std::min(end_of(event), row_end(row)) - event.begin_ns;
        }
        stages.push_back({end_of(event), event.name});
      }
      if (const auto id = unit_of(trace, event); id && event.kind == trace::EventKind::kRange) {
        UnitRow row;
        row.unit = id->unit;
        row.number = id->number;
        row.place = places[i];
        row.begin_ns = event.begin_ns;
        row.duration_ns = event.duration_ns;
        row.truncated = event.truncated;
        if (!stages.empty()) row.stage_ns[std::string(stages.back().name)] += event.duration_ns;
        open.push_back(rows.size());
        rows.push_back(std::move(row));
      }
      continue;
    }
    for (const std::size_t row : open) {
      ++rows[row].events;
      // The outermost range of its category on its track, so that nesting is counted once.
      bool outermost = true;
      for (std::uint32_t parent = event.parent; parent != trace::kNoParent && outermost; parent = trace.events[parent].parent) {
        const Event& above = trace.events[parent];
        outermost = above.category != event.category || above.begin_ns < rows[row].begin_ns;
      }
      if (outermost) {
        rows[row].category_ns[std::string(event.category)] += std::min(end_of(event), row_end(row)) - event.begin_ns;
      }
    }
  }
  if (wanted) std::erase_if(rows, [&wanted](const UnitRow& row) { return row.unit != *wanted; });
  return rows;
}

std::vector<NameRow> name_table(const Trace& trace, TierFilter tier) {
  std::vector<std::int64_t> children_ns(trace.events.size(), 0);
  for (const Event& event : trace.events) {
    if (event.parent != trace::kNoParent) children_ns[event.parent] += event.duration_ns;
  }
  std::map<std::pair<std::string_view, std::string_view>, NameRow> rows;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    const Event& event = trace.events[i];
    if (tier == TierFilter::kDetail && event.tier != trace::Tier::kDetail) continue;
    if (tier == TierFilter::kSkeleton && event.tier != trace::Tier::kSkeleton) continue;
    NameRow& row = rows[{event.name, event.category}];
    row.min_ns = row.count == 0 ? event.duration_ns : std::min(row.min_ns, event.duration_ns);
    row.max_ns = std::max(row.max_ns, event.duration_ns);
    ++row.count;
    row.total_ns += event.duration_ns;
    row.self_ns += std::max<std::int64_t>(0, event.duration_ns - children_ns[i]);
  }
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

void merge(std::vector<NameRow>* into, const std::vector<NameRow>& from) {
  std::map<std::pair<std::string, std::string>, std::size_t> where;
  for (std::size_t i = 0; i < into->size(); ++i) where[{(*into)[i].name, (*into)[i].category}] = i;
  for (const NameRow& row : from) {
    const auto [found, fresh] = where.try_emplace({row.name, row.category}, into->size());
    if (fresh) {
      into->push_back(row);
      continue;
    }
    NameRow& sum = (*into)[found->second];
    sum.count += row.count;
    sum.total_ns += row.total_ns;
    sum.self_ns += row.self_ns;
    sum.min_ns = std::min(sum.min_ns, row.min_ns);
    sum.max_ns = std::max(sum.max_ns, row.max_ns);
  }
  std::stable_sort(into->begin(), into->end(), [](const NameRow& a, const NameRow& b) { return a.total_ns > b.total_ns; });
}

std::vector<UnitRow> joined_unit_table(const std::vector<Trace>& traces, std::optional<Unit> unit) {
  // One unit of one process and role. Its begin was stamped once, but each trace has its own map from ticks to time, so
  // that two traces may disagree by microseconds; units of one number in two leases lie much further apart.
  using Key = std::tuple<std::string, std::int64_t, std::string, int, std::int64_t, std::int64_t, std::int64_t, std::string>;
  constexpr std::int64_t kNone = INT64_MIN;
  constexpr std::int64_t kSameBeginNs = 100'000;
  std::multimap<Key, UnitRow> rows;
  const auto add = [&](const Trace& trace) {
    for (UnitRow& row : unit_table(trace, unit)) {
      const Place& place = row.place;
      const Key key{trace.info.host, trace.info.pid, trace.info.role, static_cast<int>(row.unit), place.train_step.value_or(kNone),
                    place.mini_batch.value_or(kNone), place.micro_batch.value_or(kNone), std::string(place.stage)};
      auto [found, end] = rows.equal_range(key);
      while (found != end && std::abs(found->second.begin_ns - row.begin_ns) > kSameBeginNs) ++found;
      if (found == end) {
        rows.emplace(key, std::move(row));
        continue;
      }
      // The whole range wins over one that a window's end cut; detail comes from the windows.
      UnitRow& known = found->second;
      if (known.truncated && !row.truncated) {
        known.begin_ns = row.begin_ns;
        known.duration_ns = row.duration_ns;
        known.truncated = false;
        known.stage_ns = row.stage_ns;
      }
      known.events = std::max(known.events, row.events);
      for (const auto& [category, ns] : row.category_ns) known.category_ns[category] = std::max(known.category_ns[category], ns);
    }
  };
  for (const Trace& trace : traces) add(trace);
  std::vector<UnitRow> table;
  table.reserve(rows.size());
  for (auto& [key, row] : rows) table.push_back(std::move(row));
  std::stable_sort(table.begin(), table.end(), [](const UnitRow& a, const UnitRow& b) {
    return a.begin_ns != b.begin_ns ? a.begin_ns < b.begin_ns : static_cast<int>(a.unit) < static_cast<int>(b.unit);
  });
  return table;
}

}  // namespace marey::analysis
