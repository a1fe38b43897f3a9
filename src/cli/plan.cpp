#include <fmt/format.h>

#include <memory>

#include "src/cli/common.h"
#include "src/schedule/schedule.h"

namespace marey::cli {
namespace {

struct Flags {
  std::string schedule;
  std::int64_t units = 0;
  std::string unit = "mini_batch";
  bool json = false;
};

constexpr std::int64_t kMaxUnits = 1'000'000;
constexpr std::int64_t kStripUnits = 50;

Json schedule_json(const schedule::Schedule& s) {
  return {{"skip_first", s.skip_first}, {"wait", s.wait},     {"warmup", s.warmup},
          {"active", s.active},         {"repeat", s.repeat}, {"skip_first_wait", s.skip_first_wait}};
}

void print_text(const Flags& flags, const schedule::Schedule& s) {
  // One character a unit, in rows of fifty with the number of each row's first unit.
  fmt::print("{} 0-{} of schedule {}\n", flags.unit, flags.units - 1, schedule::to_string(s));
  for (std::int64_t row = 0; row < flags.units; row += kStripUnits) {
    std::string strip;
    for (std::int64_t n = row; n < std::min(flags.units, row + kStripUnits); ++n) {
      if (n > row && n % 10 == 0) strip += ' ';
      switch (schedule::action_of(s, n)) {
        case schedule::Action::kNone:
          strip += '.';
          break;
        case schedule::Action::kWarmup:
          strip += 'w';
          break;
        case schedule::Action::kRecord:
          strip += 'R';
          break;
        case schedule::Action::kRecordAndSave:
          strip += 'S';
          break;
      }
    }
    fmt::print("{:>7}  {}\n", row, strip);
  }
  fmt::print("         . none  w warmup  R record  S record and save\n");
  const auto windows = schedule::plan(s, flags.units);
  if (windows.empty()) {
    const auto first = schedule::first_recorded(s);
    fmt::print("no window in {} units; the first unit to be recorded is {}\n", flags.units, first.value_or(-1));
  }
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (i == 10) {
      fmt::print("... and {} more windows\n", windows.size() - i);
      break;
    }
    fmt::print("window {}: {} {}-{}{}\n", i, flags.unit, windows[i].first, windows[i].last,
               windows[i].complete ? ""
                                   : fmt::format("  PARTIAL: only {} of {} units exist", flags.units - windows[i].first,
                                                 windows[i].last - windows[i].first + 1));
  }
}

int run(const Flags& flags) {
  const auto parsed = schedule::parse(flags.schedule);
  if (!parsed.is_ok()) {
    print_error("plan", parsed.status().message());
    return kExitUsage;
  }
  const schedule::Schedule& s = parsed.value();
  if (!flags.json) {
    print_text(flags, s);
    return kExitOk;
  }
  Json actions = Json::array();
  for (std::int64_t n = 0; n < flags.units; ++n) actions.push_back(schedule::action_name(schedule::action_of(s, n)));
  Json windows = Json::array();
  for (const auto& window : schedule::plan(s, flags.units)) {
    windows.push_back({{"first", window.first}, {"last", window.last}, {"complete", window.complete}});
  }
  fmt::print(
      "{}\n",
      json_text({{"schedule", schedule_json(s)}, {"units", flags.units}, {"actions", actions}, {"windows", windows}}));
  return kExitOk;
}

}  // namespace

void add_plan(CLI::App& app, int* exit_code) {
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("plan", "Show which units a schedule records, before any run");
  command
      ->add_option("--schedule", flags->schedule,
                   "skip_first=,wait=,warmup=,active=,repeat=,skip_first_wait= (those left out are 0)")
      ->required();
  command->add_option("--units", flags->units, "How many units to show")
      ->required()
      ->check(CLI::Range(std::int64_t{1}, kMaxUnits));
  command->add_option("--unit", flags->unit, "What is counted, for the text output")
      ->check(CLI::IsMember({"train_step", "mini_batch", "micro_batch"}))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print JSON: schedule, units, actions, windows");
  command->footer(std::string("Example: marey plan --schedule skip_first=1,warmup=1,active=2,repeat=1 --units 8\n") +
                  std::string(kExitCodesHelp));
  command->callback([flags, exit_code] { *exit_code = run(*flags); });
}

}  // namespace marey::cli
