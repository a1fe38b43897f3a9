// The tables of src/analysis against tests/golden/analysis: each file holds traces and, beside them, the tables expected.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include "src/analysis/analysis.h"

namespace marey::analysis {
namespace {

using trace::Event;
using trace::Trace;

/// A golden file: traces, and lines of expected tables with one space between their columns.
struct Golden {
  std::deque<std::string> text;  ///< behind the views of the events
  std::vector<Trace> traces;
  std::vector<std::string> units;
  std::map<std::string, std::vector<std::string>> names;
};

/// Nests and sorts the events as the reader does: by begin, then depth.
void finish(Trace* trace) {
  std::vector<Event>& events = trace->events;
  std::vector<std::vector<std::uint32_t>> open(trace->tracks.size());
  for (std::uint32_t i = 0; i < events.size(); ++i) {
    auto& stack = open[events[i].track];
    const auto ended = [&](std::uint32_t at) { return events[at].begin_ns + events[at].duration_ns <= events[i].begin_ns; };
    while (!stack.empty() && ended(stack.back())) stack.pop_back();
    events[i].parent = stack.empty() ? trace::kNoParent : stack.back();
    events[i].depth = static_cast<std::uint16_t>(stack.size());
    stack.push_back(i);
  }
  std::vector<std::uint32_t> order(events.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&events](std::uint32_t a, std::uint32_t b) {
    return std::tie(events[a].begin_ns, events[a].depth) < std::tie(events[b].begin_ns, events[b].depth);
  });
  std::vector<std::uint32_t> where(order.size());
  std::vector<Event> sorted;
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    where[order[i]] = i;
    sorted.push_back(events[order[i]]);
  }
  for (Event& event : sorted) {
    if (event.parent != trace::kNoParent) event.parent = where[event.parent];
  }
  events = std::move(sorted);
}

void add_event(std::istream& line, Golden* golden) {
  Trace& trace = golden->traces.back();
  const auto keep = [golden](const std::string& text) { return std::string_view(golden->text.emplace_back(text)); };
  std::string tier, kind, track, category, name, word;
  Event event;
  line >> tier >> kind >> event.begin_ns >> event.duration_ns >> track >> category >> name;
  ASSERT_TRUE(line) << name;
  event.tier = tier == "skeleton" ? trace::Tier::kSkeleton : trace::Tier::kDetail;
  event.kind = kind == "mark" ? trace::EventKind::kMark : trace::EventKind::kRange;
  event.name = keep(name);
  event.category = keep(category);
  event.first_arg = static_cast<std::uint32_t>(trace.args.size());
  const auto known = std::find_if(trace.tracks.begin(), trace.tracks.end(), [&track](const auto& other) { return other.name == track; });
  event.track = static_cast<std::uint32_t>(known - trace.tracks.begin());
  if (known == trace.tracks.end()) trace.tracks.push_back({.name = track});
  while (line >> word) {
    if (word == "cut") {
      event.truncated = true;
      continue;
    }
    const std::size_t equals = word.find('=');
    ASSERT_NE(equals, std::string::npos) << word;
    trace.args.push_back({.key = "unit", .type = trace::ArgValue::Type::kString, .string_value = keep(word.substr(0, equals))});
    trace.args.push_back({.key = "index", .int_value = std::stoll(word.substr(equals + 1)), .string_value = {}});
    event.arg_count = 2;
  }
  trace.events.push_back(event);
}

void read_golden(const std::filesystem::path& path, Golden* golden) {
  std::ifstream file(path);
  std::vector<std::string>* table = nullptr;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string word;
    if (!(line >> word) || word.front() == '#') continue;
    if (word == "trace") {
      std::string kind;
      Trace& trace = golden->traces.emplace_back();
      line >> kind >> trace.info.role >> trace.info.host >> trace.info.pid >> trace.info.rank;
      trace.info.kind = kind == "skeleton" ? trace::TraceKind::kSkeleton : trace::TraceKind::kWindow;
    } else if (word == "event") {
      add_event(line, golden);
    } else if (word == "units") {
      table = &golden->units;
    } else if (word == "names") {
      line >> word;
      table = &golden->names[word];
    } else {
      ASSERT_NE(table, nullptr) << text;
      std::string row = word;
      while (line >> word) row += " " + word;
      table->push_back(row);
    }
  }
  for (Trace& trace : golden->traces) finish(&trace);
}

std::string times(const std::map<std::string, std::int64_t>& of) {
  std::string text;
  for (const auto& [name, ns] : of) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, ns);
  return text.empty() ? "-" : text;
}

std::vector<std::string> lines_of(const std::vector<UnitRow>& rows) {
  std::vector<std::string> lines;
  for (const UnitRow& row : rows) {
    lines.push_back(fmt::format("{}/{} {}:{} {} {} {} {} {} {} {}", row.role, row.pid, schedule::unit_name(row.unit), row.number,
                                row.place.stage.empty() ? "-" : row.place.stage, row.begin_ns, row.duration_ns, row.truncated ? "cut" : "-",
                                row.events, times(row.stage_ns), times(row.category_ns)));
  }
  return lines;
}

std::vector<std::string> lines_of(const std::vector<NameRow>& rows) {
  std::vector<std::string> lines;
  for (const NameRow& row : rows) {
    lines.push_back(fmt::format("{} {} {} {} {} {} {} {}", row.name, row.category, row.count, row.total_ns, row.self_ns, row.mean_ns(),
                                row.min_ns, row.max_ns));
  }
  return lines;
}

TEST(AnalysisTables, EqualTheGoldenOnes) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(MAREY_GOLDEN "/analysis")) {
    SCOPED_TRACE(entry.path().filename().string());
    Golden golden;
    ASSERT_NO_FATAL_FAILURE(read_golden(entry.path(), &golden));
    ASSERT_FALSE(golden.traces.empty() || golden.units.empty() || golden.names.empty());
    const std::map<std::string, TierFilter> tiers{{"all", TierFilter::kAll}, {"detail", TierFilter::kDetail}, {"skeleton", TierFilter::kSkeleton}};
    EXPECT_EQ(lines_of(joined_unit_table(golden.traces, std::nullopt)), golden.units);
    for (const auto& [tier, names] : golden.names) EXPECT_EQ(lines_of(joined_name_table(golden.traces, tiers.at(tier))), names) << tier;
    // The order in which a folder's files are read changes nothing.
    std::reverse(golden.traces.begin(), golden.traces.end());
    EXPECT_EQ(lines_of(joined_unit_table(golden.traces, std::nullopt)), golden.units);
    EXPECT_EQ(lines_of(joined_name_table(golden.traces, tiers.at(golden.names.begin()->first))), golden.names.begin()->second);
    if (golden.traces.size() == 1) {
      EXPECT_EQ(lines_of(unit_table(golden.traces[0], std::nullopt)), golden.units);
      for (const auto& [tier, names] : golden.names) EXPECT_EQ(lines_of(name_table(golden.traces[0], tiers.at(tier))), names) << tier;
    }
    ++files;
  }
  EXPECT_GE(files, 3);
}

TEST(AnalysisPlaces, HoldWhatBeginsInTheUnitAndNothingAtItsEnd) {
  Golden golden;
  ASSERT_NO_FATAL_FAILURE(read_golden(MAREY_GOLDEN "/analysis/one_window.txt", &golden));
  const Trace& trace = golden.traces[0];
  const auto places = places_of(trace);
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < trace.events.size(); ++i) {
    if (trace.events[i].tier != trace::Tier::kDetail) continue;
    const auto number = [](const std::optional<std::int64_t>& of) { return of ? std::to_string(*of) : "-"; };
    const Place& place = places[i];
    lines.push_back(fmt::format("{}@{} {} {} {} {}", trace.events[i].name, trace.events[i].begin_ns, number(place.train_step),
                                number(place.mini_batch), number(place.micro_batch), place.stage));
  }
  const std::vector<std::string> expected{
      "mm@300 2 0 - actor_update",   "load@300 2 0 - actor_update", "late@590 2 0 - actor_update",   "forward@600 2 1 0 actor_update",
      "linear@610 2 1 0 actor_update", "mm@620 2 1 0 actor_update", "note@699 2 1 0 actor_update",   "node@700 2 1 1 actor_update",
      "mm@710 2 1 1 actor_update",   "mm@880 2 1 1 actor_update",   "load@900 2 - - actor_update"};
  EXPECT_EQ(lines, expected);
}

TEST(AnalysisTables, KeepSumsOfAbsurdTimesInRange) {
  Trace trace;
  trace.tracks.push_back({.name = "main"});
  for (int i = 0; i < 4; ++i) {
    Event event;
    event.begin_ns = i;
    event.duration_ns = INT64_MAX - i;
    event.name = "x";
    event.category = "user";
    event.parent = i == 0 ? trace::kNoParent : 0;
    trace.events.push_back(event);
  }
  const auto rows = name_table(trace, TierFilter::kAll);
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].count, 4U);
  EXPECT_EQ(rows[0].total_ns, INT64_MAX);
  EXPECT_EQ(rows[0].min_ns, INT64_MAX - 3);
}

}  // namespace
}  // namespace marey::analysis
