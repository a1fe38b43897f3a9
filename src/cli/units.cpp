#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <tuple>

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
  for (const auto& [name, ns] : sorted) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", cell(name, 32), human_time(ns));
  return text.empty() ? "-" : text;
}

/// One table of the units of one process and role; times count from `origin_ns`.
void print_rows(std::span<const analysis::UnitRow> rows, std::int64_t origin_ns) {
  std::vector<std::vector<std::string>> lines{{"unit", "stage", "begin", "duration", "events", "time by category"}};
  for (const auto& row : rows) {
    lines.push_back({fmt::format("{:{}}{} {}{}", "", 2 * static_cast<int>(row.unit), schedule::unit_name(row.unit), row.number, row.truncated ? " (cut)" : ""),
                     cell(row.place.stage, 32), "+" + human_time(row.begin_ns - origin_ns), human_time(row.duration_ns),
                     row.events == 0 ? "-" : std::to_string(row.events), times_text(row.category_ns)});
    if (row.unit == schedule::Unit::kTrainStep && !row.stage_ns.empty()) {
      lines.push_back({"", "", "", "", "", "stages: " + times_text(row.stage_ns)});
    }
  }
  fmt::print("{}", table(lines, {false, false, true, true, true, false}));
}

void print_json(const std::vector<analysis::UnitRow>& rows) {
  Json list = Json::array();
  for (const auto& row : rows) {
    list.push_back({{"unit", schedule::unit_name(row.unit)},
                    {"number", row.number},
                    {"role", text_or_null(row.role)},
                    {"rank", row.rank},
                    {"host", text_or_null(row.host)},
                    {"pid", row.pid},
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
}

int run(const Flags& flags) {
  int exit_code = kExitOk;
  const auto traces = load("units", flags.paths, {}, &exit_code);
  std::optional<schedule::Unit> unit;
  if (!flags.unit.empty()) unit = schedule::parse_unit(flags.unit);
  const auto rows = analysis::joined_unit_table(traces, unit);
  if (flags.json) print_json(rows);
  if (rows.empty() && !traces.empty()) {
    print_error("units", flags.unit.empty() ? "no units in these traces: they were recorded without units or without a skeleton"
                                            : fmt::format("no {} in these traces; without --unit all kinds are shown", flags.unit));
    return std::max(exit_code, kExitMissing);
  }
  if (flags.json) return exit_code;
  // The clocks of two hosts do not compare.
  std::map<std::string, std::int64_t> origin_ns;
  for (const auto& row : rows) {
    const auto [origin, fresh] = origin_ns.try_emplace(row.host, row.begin_ns);
    if (!fresh) origin->second = std::min(origin->second, row.begin_ns);
  }
  const auto owner = [](const analysis::UnitRow& row) { return std::tie(row.rank, row.host, row.pid, row.role); };
  const bool several = !rows.empty() && owner(rows.front()) != owner(rows.back());
  for (std::size_t first = 0, last = 0; first < rows.size(); first = last) {
    while (last < rows.size() && owner(rows[last]) == owner(rows[first])) ++last;
    const analysis::UnitRow& row = rows[first];
    if (several) {
      fmt::print("{}{}rank {}, process {} on {}\n", first == 0 ? "" : "\n", row.role.empty() ? "" : cell(row.role, 32) + ", ", row.rank, row.pid, cell(row.host));
    }
    print_rows(std::span(rows).subspan(first, last - first), origin_ns[row.host]);
  }
  return exit_code;
}

}  // namespace

void add_units(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("units", "Per train step, mini-batch and micro-batch: begin, duration, events, time by stage and category");
  command->add_option("path", flags->paths, "Trace files, or folders of them (windows and skeletons are joined)")->required();
  command->add_option("--unit", flags->unit, "Only this kind")->check(CLI::IsMember({"train_step", "mini_batch", "micro_batch"}));
  command->add_flag("--json", flags->json, "Print a JSON array, one object a unit; times in ns");
  command->footer(std::string("Time by category is that of the outermost ranges of the category on each thread; events are those that begin in the unit.\n"
                              "Example: marey units marey-traces/\n") +
                  std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
