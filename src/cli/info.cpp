#include <fmt/format.h>

#include <memory>

#include "src/cli/common.h"

namespace marey::cli {
namespace {

struct Flags {
  std::vector<std::string> paths;
  bool json = false;
};

Json to_json(const trace::Trace& t) {
  const trace::TraceInfo& info = t.info;
  Json sources = Json::array();
  for (const auto& source : info.sources)
    sources.push_back({{"name", source.name}, {"state", source.state}, {"reason", source.reason}});
  Json losses = Json::array();
  for (const auto& loss : info.losses) {
    losses.push_back({{"reason", loss.reason},
                      {"count", loss.count},
                      {"source", loss.source},
                      {"begin_ns", loss.begin_ns},
                      {"end_ns", loss.end_ns}});
  }
  const schedule::Schedule& s = info.schedule;
  Json schedule = nullptr;
  if (info.unit) {
    schedule = {{"skip_first", s.skip_first}, {"wait", s.wait},     {"warmup", s.warmup},
                {"active", s.active},         {"repeat", s.repeat}, {"skip_first_wait", s.skip_first_wait}};
  }
  return {{"path", t.path},
          {"state", trace::state_name(t.state)},
          {"state_reason", text_or_null(t.state_reason)},
          {"kind", info.kind == trace::TraceKind::kSkeleton ? "skeleton" : "window"},
          {"role", text_or_null(info.role)},
          {"stage", text_or_null(info.stage)},
          {"train_step", number_or_null(info.train_step)},
          {"unit", info.unit ? Json(schedule::unit_name(*info.unit)) : Json(nullptr)},
          {"first_unit", number_or_null(info.first_unit)},
          {"last_unit", number_or_null(info.last_unit)},
          {"recorded_units", info.recorded_units},
          {"planned_units", info.planned_units},
          {"complete", info.complete && t.state == trace::TraceState::kSealed},
          {"end_reason", text_or_null(info.end_reason)},
          {"rank", info.rank},
          {"world_size", info.world_size},
          {"parallel", text_or_null(info.parallel)},
          {"job", text_or_null(info.job)},
          {"host", info.host},
          {"pid", info.pid},
          {"id", info.id},
          {"begin_unix_ns", info.begin_unix_ns},
          {"begin_ns", info.begin_ns},
          {"duration_ns", info.end_ns - info.begin_ns},
          {"events", info.events},
          {"bytes", t.bytes},
          {"schedule", schedule},
          {"contents", info.contents},
          {"sources", sources},
          {"losses", losses},
          {"ticks_per_ns", info.ticks_per_ns},
          {"clock_residual_ns", info.clock_residual_ns},
          {"event_cost_ns", info.event_cost_ns},
          {"marey_version", info.marey_version}};
}

std::string units_text(const trace::TraceInfo& info) {
  if (!info.unit || !info.first_unit) return "-";
  std::string text = fmt::format("{} {}", schedule::unit_name(*info.unit), *info.first_unit);
  if (info.last_unit && *info.last_unit != *info.first_unit) text += fmt::format("-{}", *info.last_unit);
  return text;
}

void print_one(const trace::Trace& t) {
  const trace::TraceInfo& info = t.info;
  fmt::print("{}\n", t.path);
  const auto line = [](std::string_view key, const std::string& value) { fmt::print("  {:<12}{}\n", key, value); };
  line("state", t.state_reason.empty() ? std::string(trace::state_name(t.state))
                                       : fmt::format("{}: {}", trace::state_name(t.state), t.state_reason));
  const bool window = info.kind == trace::TraceKind::kWindow;
  std::string what = window ? "window" : "skeleton";
  if (!info.role.empty()) what += fmt::format(" of {}", info.role);
  if (!info.stage.empty()) what += fmt::format(" in {}", info.stage);
  if (info.train_step) what += fmt::format(", train_step {}{}", *info.train_step, window ? "" : " and on");
  line("what", what);
  if (window && info.unit) {
    line("units",
         fmt::format("{}: {} of {} whole{}", units_text(info), info.recorded_units, info.planned_units,
                     info.complete
                         ? ""
                         : fmt::format(" - PARTIAL{}", info.end_reason.empty() ? "" : " (" + info.end_reason + ")")));
    line("schedule", schedule::to_string(info.schedule));
  }
  line("rank",
       fmt::format("{} of {}{}", info.rank, info.world_size, info.parallel.empty() ? "" : ", " + info.parallel));
  line("process", fmt::format("{} on {}", info.pid, info.host));
  line("duration", human_time(info.end_ns - info.begin_ns));
  line("events", fmt::format("{} in {}", info.events, human_bytes(t.bytes)));
  line("contents", fmt::format("{}", fmt::join(info.contents, ", ")));
  for (const auto& source : info.sources) {
    line("source",
         fmt::format("{}: {}{}", source.name, source.state, source.reason.empty() ? "" : " (" + source.reason + ")"));
  }
  for (const auto& loss : info.losses) {
    line("LOST", fmt::format("{} events ({}) from {} to {} after the begin", loss.count, loss.reason,
                             human_time(loss.begin_ns - info.begin_ns), human_time(loss.end_ns - info.begin_ns)));
  }
  line("clock",
       fmt::format("{:.4f} ticks/ns, off by {} at the end", info.ticks_per_ns, human_time(info.clock_residual_ns)));
}

int run(const Flags& flags) {
  int exit_code = kExitOk;
  trace::ReadOptions options;
  options.info_only = true;
  const auto traces = load("info", flags.paths, options, &exit_code);
  if (flags.json) {
    Json list = Json::array();
    for (const auto& t : traces) list.push_back(to_json(t));
    fmt::print("{}\n", json_text(list, 2));
  } else {
    for (std::size_t i = 0; i < traces.size(); ++i) {
      if (i > 0) fmt::print("\n");
      print_one(traces[i]);
    }
  }
  return exit_code;
}

}  // namespace

void add_info(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("info", "Say what traces hold: state, role, units, rank, events, losses");
  command->add_option("path", flags->paths, "Trace files, or folders of them")->required();
  command->add_flag("--json", flags->json, "Print a JSON array, one object a trace");
  command->footer(std::string("Example: marey info marey-traces/\n") + std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
