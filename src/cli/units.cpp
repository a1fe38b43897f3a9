#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "src/analysis/analysis.h"
#include "src/cli/common.h"

namespace marey::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  std::string unit;
  bool json = false;
};

Json times_json(const std::map<std::string, std::int64_t>& times) {
  Json object = Json::object();
  for (const auto& [name, ns] : times) object[name] = ns;
  return object;
}

std::string times_text(const std::map<std::string, std::int64_t>& times) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(times.begin(), times.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (const auto& [name, ns] : sorted) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, human_time(ns));
  return text.empty() ? "-" : text;
}

int run(const Flags& flags) {
  int exit_code = kExitOk;
  const auto traces = load("units", flags.paths, {}, &exit_code);
  if (traces.empty()) return exit_code;
  std::optional<schedule::Unit> unit;
  if (!flags.unit.empty()) unit = schedule::parse_unit(flags.unit);
  const auto rows = analysis::joined_unit_table(traces, unit);
  if (flags.json) {
    Json list = Json::array();
    for (const auto& row : rows) {
      list.push_back({{"unit", schedule::unit_name(row.unit)},
                      {"number", row.number},
                      {"train_step", number_or_null(row.place.train_step)},
                      {"mini_batch", number_or_null(row.place.mini_batch)},
                      {"micro_batch", number_or_null(row.place.micro_batch)},
                      {"stage", text_or_null(std::string(row.place.stage))},
                      {"begin_ns", row.begin_ns},
                      {"duration_ns", row.duration_ns},
                      {"events", row.events},
                      {"truncated", row.truncated},
                      {"stages", times_json(row.stage_ns)},
                      {"categories", times_json(row.category_ns)}});
    }
    fmt::print("{}\n", json_text(list, 2));
    return exit_code;
  }
  if (rows.empty()) {
    print_error("units", "no units in these traces: they were recorded without units or without a skeleton");
    return std::max(exit_code, kExitMissing);
  }
  std::int64_t origin_ns = rows.front().begin_ns;
  for (const auto& row : rows) origin_ns = std::min(origin_ns, row.begin_ns);
  std::vector<std::vector<std::string>> lines{{"unit", "stage", "begin", "duration", "events", "time by category"}};
  for (const auto& row : rows) {
    lines.push_back({fmt::format("{:{}}{} {}{}", "", 2 * static_cast<int>(row.unit), schedule::unit_name(row.unit), row.number, row.truncated ? " (cut)" : ""),
                     std::string(row.place.stage), "+" + human_time(row.begin_ns - origin_ns), human_time(row.duration_ns),
                     row.events == 0 ? "-" : std::to_string(row.events), times_text(row.category_ns)});
    if (row.unit == schedule::Unit::kTrainStep && !row.stage_ns.empty()) {
      lines.push_back({"", "", "", "", "", "stages: " + times_text(row.stage_ns)});
    }
  }
  fmt::print("{}", table(lines, {false, false, true, true, true, false}));
  return exit_code;
}

}  // namespace

void add_units(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("units", "Per train step, mini-batch and micro-batch: begin, duration, events, time by stage and category");
  command->add_option("path", flags->paths, "Trace files, or folders of them (windows and skeletons are joined)")->required();
  command->add_option("--unit", flags->unit, "Only this kind")->check(CLI::IsMember({"train_step", "mini_batch", "micro_batch"}));
  command->add_flag("--json", flags->json, "Print a JSON array, one object a unit; times in ns");
  command->footer(std::string("Time by category is that of the outermost ranges of each thread; events are those that begin in the unit.\n"
                              "Example: marey units marey-traces/\n") +
                  std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
