#include "src/schedule/schedule.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace marey::schedule {
namespace {

/// Large enough for any run, small enough that no sum or product of a few of them overflows where it must not.
constexpr std::int64_t kMaxNumber = std::int64_t{1} << 40;

/// Units past this are never recorded: no sum below overflows, and no run counts so far.
constexpr std::int64_t kLastUnit = std::int64_t{1} << 60;

struct Field {
  std::string_view name;
  std::int64_t Schedule::*member;
};
constexpr std::array<Field, 6> kFields{{{"skip_first", &Schedule::skip_first},
                                        {"wait", &Schedule::wait},
                                        {"warmup", &Schedule::warmup},
                                        {"active", &Schedule::active},
                                        {"repeat", &Schedule::repeat},
                                        {"skip_first_wait", &Schedule::skip_first_wait}}};

std::int64_t cycle_of(const Schedule& s) { return s.wait + s.warmup + s.active; }

/// Unit counted from the begin of the first cycle, whose wait skip_first_wait leaves out.
std::int64_t offset_of(const Schedule& s) { return s.skip_first_wait != 0 ? s.wait : 0; }

/// First unit after the last cycle; nullopt when it repeats for ever.
std::optional<std::int64_t> end_of(const Schedule& s) {
  if (s.repeat == 0) return std::nullopt;
  std::int64_t units = 0;
  if (__builtin_mul_overflow(s.repeat, cycle_of(s), &units) || units > kLastUnit) return std::nullopt;
  return s.skip_first + units - offset_of(s);
}

}  // namespace

std::string_view unit_name(Unit unit) {
  switch (unit) {
    case Unit::kTrainStep: return "train_step";
    case Unit::kMiniBatch: return "mini_batch";
    case Unit::kMicroBatch: return "micro_batch";
  }
  return "?";
}

std::optional<Unit> parse_unit(std::string_view name) {
  for (const Unit unit : {Unit::kTrainStep, Unit::kMiniBatch, Unit::kMicroBatch}) {
    if (unit_name(unit) == name) return unit;
  }
  return std::nullopt;
}

std::string_view action_name(Action action) {
  switch (action) {
    case Action::kNone: return "none";
    case Action::kWarmup: return "warmup";
    case Action::kRecord: return "record";
    case Action::kRecordAndSave: return "record_and_save";
  }
  return "?";
}

Status validate(const Schedule& schedule) {
  for (const Field& field : kFields) {
    const std::int64_t value = schedule.*field.member;
    if (value < 0) {
      return Status::invalid_argument(fmt::format("schedule: {}={} is negative; use a number from 0", field.name, value));
    }
    if (value > kMaxNumber) {
      return Status::invalid_argument(fmt::format("schedule: {}={} is larger than {}", field.name, value, kMaxNumber));
    }
  }
  return Status::ok();
}

Result<Schedule> parse(std::string_view text) {
  Schedule schedule;
  std::array<bool, kFields.size()> seen{};
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    const std::size_t equals = item.find('=');
    if (equals == std::string_view::npos) {
      return Status::invalid_argument(fmt::format("schedule: '{}' is not field=number, such as active=2", item));
    }
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(equals + 1);
    std::size_t index = 0;
    while (index < kFields.size() && kFields[index].name != key) ++index;
    if (index == kFields.size()) {
      return Status::invalid_argument(fmt::format(
          "schedule: '{}' is not a field; use skip_first, wait, warmup, active, repeat, skip_first_wait", key));
    }
    if (seen[index]) return Status::invalid_argument(fmt::format("schedule: {} is given twice", key));
    seen[index] = true;
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc::result_out_of_range && !value.starts_with('-')) {
      return Status::invalid_argument(fmt::format("schedule: {}={} is larger than {}", key, value, kMaxNumber));
    }
    if (error == std::errc::result_out_of_range) {
      return Status::invalid_argument(fmt::format("schedule: {}={} is negative; use a number from 0", key, value));
    }
    if (error != std::errc() || end != value.data() + value.size()) {
      return Status::invalid_argument(fmt::format("schedule: {}={} is not a whole number", key, value));
    }
    schedule.*kFields[index].member = number;
  }
  MAREY_RETURN_IF_ERROR(validate(schedule));
  return schedule;
}

std::string to_string(const Schedule& schedule) {
  std::string text;
  for (const Field& field : kFields) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", field.name, schedule.*field.member);
  }
  return text;
}

Action action_of(const Schedule& s, std::int64_t number) {
  if (number < 0 || number > kLastUnit) return Action::kNone;
  if (s.active == 0) return Action::kRecord;
  if (number < s.skip_first) return Action::kNone;
  if (const auto end = end_of(s); end && number >= *end) return Action::kNone;
  const std::int64_t in_cycle = (number - s.skip_first + offset_of(s)) % cycle_of(s);
  if (in_cycle < s.wait) return Action::kNone;
  if (in_cycle < s.wait + s.warmup) return Action::kWarmup;
  return in_cycle < cycle_of(s) - 1 ? Action::kRecord : Action::kRecordAndSave;
}

std::optional<std::int64_t> next_change(const Schedule& s, std::int64_t number) {
  if (number < 0) number = -1;
  if (number > kLastUnit - 8 * kMaxNumber) return std::nullopt;
  if (s.active == 0) return number < 0 ? std::optional<std::int64_t>(0) : std::nullopt;
  const Action now = action_of(s, number);
  std::int64_t at = number < 0 ? 0 : number;
  // Each stretch of one action is left in one stride; a cycle has at most four stretches, so this ends soon.
  for (int strides = 0; strides < 10; ++strides) {
    if (at != number && action_of(s, at) != now) return at;
    if (const auto end = end_of(s); end && at >= *end) return std::nullopt;
    if (at < s.skip_first) {
      at = s.skip_first;
      continue;
    }
    const std::int64_t in_cycle = (at - s.skip_first + offset_of(s)) % cycle_of(s);
    if (in_cycle < s.wait) {
      at += s.wait - in_cycle;
    } else if (in_cycle < s.wait + s.warmup) {
      at += s.wait + s.warmup - in_cycle;
    } else if (in_cycle < cycle_of(s) - 1) {
      at += cycle_of(s) - 1 - in_cycle;
    } else {
      ++at;
    }
  }
  return std::nullopt;  // wait = warmup = 0 and active = 1: record_and_save for ever
}

std::optional<std::int64_t> first_recorded(const Schedule& s) {
  if (s.active == 0) return 0;
  return s.skip_first + s.wait + s.warmup - offset_of(s);
}

std::vector<PlannedWindow> plan(const Schedule& s, std::int64_t units) {
  std::vector<PlannedWindow> windows;
  if (units <= 0) return windows;
  if (s.active == 0) {
    windows.push_back({0, units - 1, true});
    return windows;
  }
  const auto end = end_of(s);
  for (std::int64_t first = *first_recorded(s); first < units && !(end && first >= *end); first += cycle_of(s)) {
    windows.push_back({first, first + s.active - 1, first + s.active <= units});
  }
  return windows;
}

Transition transition(Action current, Next next) {
  const bool recording = current == Action::kRecord || current == Action::kRecordAndSave;
  const bool saves = current == Action::kRecordAndSave;
  const bool will_record = next == Next::kRecord || next == Next::kRecordAndSave;
  const bool will_arm = will_record || next == Next::kWarmup;
  Transition result;
  // A window ends where the schedule says so, and wherever what comes next does not record: nothing that was recorded is
  // ever dropped, whatever the pair.
  result.close_window = recording && (saves || !will_record);
  result.open_window = will_record && (!recording || saves);
  result.arm = will_arm && current == Action::kNone;
  result.disarm = !will_arm && current != Action::kNone;
  return result;
}

}  // namespace marey::schedule
