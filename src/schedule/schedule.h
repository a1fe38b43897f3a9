#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/status.h"

namespace marey::schedule {

enum class Unit : int { kTrainStep = 0, kMiniBatch = 1, kMicroBatch = 2 };
enum class Action : int { kNone = 0, kWarmup = 1, kRecord = 2, kRecordAndSave = 3 };

/// "train_step", "mini_batch", "micro_batch".
std::string_view unit_name(Unit unit);
std::optional<Unit> parse_unit(std::string_view name);
/// "none", "warmup", "record", "record_and_save".
std::string_view action_name(Action action);

/// Which units to record. For valid values the actions equal those of torch.profiler.schedule (skip_first_wait
/// included).
struct Schedule {
  std::int64_t skip_first = 0;
  std::int64_t wait = 0;
  std::int64_t warmup = 0;
  std::int64_t active = 0;           ///< 0: no schedule, every unit is kRecord and only stop() saves
  std::int64_t repeat = 0;           ///< 0: for ever
  std::int64_t skip_first_wait = 0;  ///< non-zero: the first cycle has no wait

  bool operator==(const Schedule&) const = default;
};

/// Error naming the field and the value for negative or absurd (> 2^40) numbers.
Status validate(const Schedule& schedule);

/// Parses "skip_first=1,wait=0,warmup=1,active=2,repeat=1"; unknown keys, repeated keys and non-integers are errors
/// that name the field and the value. The result is validated.
Result<Schedule> parse(std::string_view text);
/// The inverse of parse(): all six fields, in the order of the struct.
std::string to_string(const Schedule& schedule);

/// Action of unit `number` (>= 0; negative is kNone). Pure, total, no overflow for validated schedules.
Action action_of(const Schedule& schedule, std::int64_t number);

/// The smallest n > number whose action differs from that of `number`; nullopt when none ever will.
std::optional<std::int64_t> next_change(const Schedule& schedule, std::int64_t number);

/// First unit that would be recorded; nullopt when none.
std::optional<std::int64_t> first_recorded(const Schedule& schedule);

/// A planned window [first, last] in units; complete = its last unit lies below `units`.
struct PlannedWindow {
  std::int64_t first;
  std::int64_t last;
  bool complete;
};
/// Windows that begin below `units`.
std::vector<PlannedWindow> plan(const Schedule& schedule, std::int64_t units);

/// What the recorder does between two units. `kStop` is a column of its own: stop() may come in any state.
enum class Next : int { kNone = 0, kWarmup = 1, kRecord = 2, kRecordAndSave = 3, kStop = 4 };
struct Transition {
  bool disarm = false;        ///< sources off
  bool close_window = false;  ///< the open window ends here; it is sealed whether whole or partial
  bool arm = false;           ///< sources on; events are discarded until a window opens
  bool open_window = false;   ///< a window may open at the first event of the next unit
};
/// Total: every (current action, next) pair has an entry; pairs that a schedule cannot produce close cleanly too.
Transition transition(Action current, Next next);

}  // namespace marey::schedule
