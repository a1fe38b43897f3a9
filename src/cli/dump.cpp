#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "src/analysis/analysis.h"
#include "src/cli/common.h"
#include "src/event/categories.h"

namespace marey::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  bool json = false;
};

Json arg_json(const trace::ArgValue& arg) {
  switch (arg.type) {
    case trace::ArgValue::Type::kInt:
      return arg.int_value;
    case trace::ArgValue::Type::kBool:
      return arg.int_value != 0;
    case trace::ArgValue::Type::kString:
      return std::string(arg.string_value);
    case trace::ArgValue::Type::kDouble:
      // JSON has no nan and no infinity.
      if (std::isnan(arg.double_value)) return "nan";
      if (std::isinf(arg.double_value)) return arg.double_value > 0 ? "inf" : "-inf";
      return arg.double_value;
  }
  return nullptr;
}

void print_json(const trace::Trace& t, const trace::Event& event, const analysis::Place& place) {
  const trace::Track& track = t.tracks[event.track];
  Json args = Json::object();
  for (const auto& arg : t.args_of(event)) args[std::string(arg.key)] = arg_json(arg);
  const Json line = {
      {"name", std::string(event.name)},
      {"category", std::string(event.category)},
      {"source", std::string(event::source_of(event.category))},
      {"tier", event.tier == trace::Tier::kSkeleton ? "skeleton" : "detail"},
      {"begin_ns", event.begin_ns},
      {"duration_ns", event.kind == trace::EventKind::kMark ? Json(nullptr) : Json(event.duration_ns)},
      {"pid", t.info.pid},
      {"tid", track.is_thread ? Json(track.tid) : Json(nullptr)},
      {"thread", track.name},
      {"depth", event.depth},
      {"train_step", number_or_null(place.train_step)},
      {"mini_batch", number_or_null(place.mini_batch)},
      {"micro_batch", number_or_null(place.micro_batch)},
      {"stage", text_or_null(std::string(place.stage))},
      {"args", args},
      {"flow_id", event.flow_id == 0 ? Json(nullptr) : Json(event.flow_id)},
      {"terminating_flow_id", event.terminating_flow_id == 0 ? Json(nullptr) : Json(event.terminating_flow_id)},
      {"truncated", event.truncated}};
  fmt::print("{}\n", json_text(line));
}

void print_line(const trace::Trace& t, const trace::Event& event, const analysis::Place& place) {
  const trace::Track& track = t.tracks[event.track];
  std::string where;
  const auto add = [&where](char letter, const std::optional<std::int64_t>& number) {
    if (number) where += fmt::format("{}{}", letter, *number);
  };
  add('s', place.train_step);
  add('m', place.mini_batch);
  add('u', place.micro_batch);
  std::string args;
  for (const auto& arg : t.args_of(event)) args += fmt::format(" {}={}", arg.key, json_text(arg_json(arg)));
  fmt::print("{:>12} {:>10}  {:<16.16} {:<9} {:<10} {:{}}{}{}{}\n",
             fmt::format("+{:.3f}us", static_cast<double>(event.begin_ns - t.info.begin_ns) / 1e3),
             event.kind == trace::EventKind::kMark ? "mark" : human_time(event.duration_ns), cell(track.name, 16),
             where, cell(event.category, 24), "", 2 * event.depth, cell(event.name, 100), args,
             event.truncated ? " (cut)" : "");
}

int run(const Flags& flags) {
  int exit_code = kExitOk;
  for (const auto& t : load("dump", flags.paths, {}, &exit_code)) {
    const auto places = analysis::places_of(t);
    for (std::size_t i = 0; i < t.events.size(); ++i) {
      flags.json ? print_json(t, t.events[i], places[i]) : print_line(t, t.events[i], places[i]);
    }
  }
  return exit_code;
}

}  // namespace

void add_dump(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("dump", "Print every event, one a line, in time order");
  command->add_option("path", flags->paths, "Trace files, or folders of them (one after the other)")->required();
  command->add_flag("--json", flags->json,
                    "Print one JSON object a line; times in ns of the trace's clock (CLOCK_MONOTONIC)");
  command->footer(
      std::string(
          "Text columns: begin after the window's begin, duration, thread, place (s train step, m mini-batch, u "
          "micro-batch), "
          "category, name indented by depth, arguments.\nExample: marey dump marey-traces/FILE.pftrace | less\n") +
      std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
