#pragma once

/// Profilers, schedules and windows. Rules that hold for every member function here: it may be called from any thread,
/// in any state; it never throws (out of memory apart) and never blocks on I/O unless its comment says so; an error is
/// an Error or an Expected, and was logged when the program has to know.

#include <concepts>
#include <cstdint>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "marey/expected.h"
#include "marey/marey.h"

namespace marey {

/// What a schedule counts. Units nest: a train step holds mini-batches, a mini-batch holds micro-batches.
enum class Unit : int { kTrainStep = MAREY_TRAIN_STEP, kMiniBatch = MAREY_MINI_BATCH, kMicroBatch = MAREY_MICRO_BATCH };

/// What a schedule says for one unit.
enum class Action : int {
  kNone = MAREY_NONE,
  kWarmup = MAREY_WARMUP,
  kRecord = MAREY_RECORD,
  kRecordAndSave = MAREY_RECORD_AND_SAVE
};

/// Which units to record; the fields mean what torch.profiler.schedule's do. The default records everything from start
/// to stop.
struct Schedule {
  std::int64_t skip_first = 0;       ///< units before the first cycle
  std::int64_t wait = 0;             ///< units of a cycle before its warm-up
  std::int64_t warmup = 0;           ///< units with the sources armed and their events discarded
  std::int64_t active = 0;           ///< recorded units of a cycle: one window. 0: no schedule
  std::int64_t repeat = 0;           ///< cycles; 0: for ever
  std::int64_t skip_first_wait = 0;  ///< non-zero: the first cycle has no wait

  bool operator==(const Schedule&) const = default;

  [[nodiscard]] marey_schedule to_c() const noexcept {
    return {sizeof(marey_schedule), skip_first, wait, warmup, active, repeat, skip_first_wait};
  }
  /// An error names the field and the value.
  [[nodiscard]] Error validate() const {
    const marey_schedule schedule = to_c();
    return Error::from_c(marey_schedule_validate(&schedule));
  }
  /// Action of unit `number`, from 0, of a valid schedule.
  [[nodiscard]] Action action(std::int64_t number) const noexcept {
    const marey_schedule schedule = to_c();
    return static_cast<Action>(marey_schedule_action(&schedule, number));
  }
};

/// How a profiler is made: `Profiler::create({.schedule = {.wait = 1, .active = 2}, .role = "actor"})`.
struct Options {
  Schedule schedule = {};
  Unit unit = Unit::kMiniBatch;
  std::string role = {};                        ///< who works: "actor", "critic", ...
  std::string out = {};                         ///< folder; empty: $MAREY_OUT, else "marey-traces"
  std::vector<std::string> contents = {};       ///< "outline", "cpu", "shapes", ...; empty: {"cpu"}
  std::vector<std::int64_t> steps = {};         ///< train steps that the schedule applies to; empty: all
  std::vector<std::string> stages = {};         ///< stages that it applies to, besides those begun as scheduled
  std::optional<std::int64_t> rank = {};        ///< unset: $RANK, else 0
  std::optional<std::int64_t> world_size = {};  ///< unset: $WORLD_SIZE, else 1
  std::string parallel = {};                    ///< e.g. "tp1-pp0-dp2"; empty: unknown
  std::string job = {};                         ///< empty: $SLURM_JOB_ID and kin
  bool skeleton = true;                         ///< record stages and units all the time, outside windows too
  bool quiet = false;                           ///< don't log the plan and the closing summary
};

/// A sealed trace: a window, or the skeleton of a lease.
struct Window {
  std::uint64_t sequence = 0;  ///< 1, 2, ... in order of sealing, per profiler
  std::string path;
  std::string error;  ///< empty, or why the file could not be written whole
  std::string stage;  ///< the scheduled stage that it lies in, or empty
  bool is_skeleton = false;
  bool complete = false;  ///< every planned unit is whole
  std::optional<std::int64_t> train_step;
  Unit unit = Unit::kMiniBatch;
  std::int64_t first_unit = 0;
  std::int64_t last_unit = 0;
  std::int64_t recorded_units = 0;
  std::int64_t planned_units = 0;  ///< 0: no schedule
  std::uint64_t events = 0;
  std::uint64_t lost = 0;
  std::uint64_t bytes = 0;
};

/// A profiler as it is now.
struct ProfilerStatus {
  bool running = false;
  Action action = Action::kNone;  ///< of the current unit
  std::optional<std::int64_t> train_step;
  std::string stage;                               ///< innermost open stage, or empty
  std::optional<std::int64_t> unit_number;         ///< of the schedule's unit
  std::uint64_t units_seen = 0;                    ///< ticks of the schedule's unit in this lease
  std::optional<std::int64_t> first_planned_unit;  ///< first unit that the schedule would record
  std::uint64_t windows_open = 0;
  std::uint64_t windows_sealed = 0;
  std::uint64_t windows_failed = 0;
  std::uint64_t events = 0;  ///< over all windows of this profiler
  std::uint64_t lost = 0;
  std::uint64_t starts_ignored = 0;  ///< start() of a running profiler
  std::string message;               ///< a sentence for people, e.g. "nothing was recorded because ..."
};

/// Records the units that a schedule chooses, for one role. Many may live in one process, each with its own schedule,
/// units and windows.
///
///     auto profiler = marey::Profiler::create({.schedule = {.skip_first = 2, .warmup = 1, .active = 2, .repeat = 1}});
///     if (!profiler) return fail(profiler.error().message);
///     marey::Lease lease(*profiler);
///     for (const Batch& batch : batches) {
///       train(batch);
///       profiler->step();
///     }
///
/// A default-made or moved-from profiler is off: every call of it does nothing. So a program that profiles on request
/// needs no `if` in its loop: `auto profiler = marey::Profiler::create(options).value_or({});`.
class Profiler {
 public:
  Profiler() noexcept = default;

  /// Checks the options and creates the folder. An error names the option, what is wrong with it and the remedy. Blocks
  /// on the file system.
  static Expected<Profiler> create(const Options& options) {
    const marey_schedule schedule = options.schedule.to_c();
    std::vector<const char*> contents;
    for (const std::string& word : options.contents) contents.push_back(word.c_str());
    std::vector<const char*> stages;
    for (const std::string& stage : options.stages) stages.push_back(stage.c_str());
    marey_profiler_options given{};
    given.size = sizeof given;
    given.schedule = options.schedule == Schedule{} ? nullptr : &schedule;
    given.unit = static_cast<marey_unit>(options.unit);
    given.role = options.role.c_str();
    given.out = options.out.empty() ? nullptr : options.out.c_str();
    given.contents = contents.data();
    given.contents_count = contents.size();
    given.steps = options.steps.data();
    given.steps_count = options.steps.size();
    given.stages = stages.data();
    given.stages_count = stages.size();
    given.rank = options.rank.value_or(MAREY_UNKNOWN);
    given.world_size = options.world_size.value_or(MAREY_UNKNOWN);
    given.parallel = options.parallel.empty() ? nullptr : options.parallel.c_str();
    given.job = options.job.empty() ? nullptr : options.job.c_str();
    given.no_skeleton = options.skeleton ? 0 : 1;
    given.quiet = options.quiet ? 1 : 0;
    marey_profiler* handle = nullptr;
    if (const int code = marey_profiler_create(&given, &handle); code != MAREY_OK) return Error::from_c(code);
    return Profiler(handle);
  }

  /// Stops it if it runs (as failed when an exception is what destroys it) and waits, at most 10 s, for its files.
  ~Profiler() { reset(); }

  Profiler(Profiler&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), exceptions_(other.exceptions_) {}
  Profiler& operator=(Profiler&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = std::exchange(other.handle_, nullptr);
      exceptions_ = other.exceptions_;
    }
    return *this;
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// False for a profiler that is off.
  [[nodiscard]] bool on() const noexcept { return handle_ != nullptr; }

  /// Takes the lease. A second start of a running profiler changes nothing. Unset: train steps are counted from 0 and
  /// not named. `Lease` does this and stop() for a scope.
  Error start(std::optional<std::int64_t> train_step = {}) {
    return handle_ == nullptr ? Error{}
                              : Error::from_c(marey_profiler_start(handle_, train_step.value_or(MAREY_UNKNOWN)));
  }
  /// Ends one unit of the schedule's.
  void step() noexcept {
    if (handle_ != nullptr) marey_profiler_step(handle_);
  }
  /// Ends one unit of any kind; the numbers of the units below it restart.
  void tick(Unit unit) noexcept {
    if (handle_ != nullptr) marey_profiler_tick(handle_, static_cast<marey_unit>(unit));
  }
  /// The loop over units is over: unless another tick comes before stop(), the unit that the last tick began never
  /// existed.
  void end_units() noexcept {
    if (handle_ != nullptr) marey_profiler_end_units(handle_);
  }
  /// Ends the lease. failed: the unit in flight is not whole. Returns at once; wait() for the files. Safe twice.
  Error stop(bool failed = false) {
    return handle_ == nullptr ? Error{} : Error::from_c(marey_profiler_stop(handle_, failed ? 1 : 0));
  }

  /// Stages nest, and a stage is ended by the name it was begun with. scheduled: units are counted in it, from 0.
  /// `Stage` does this for a scope.
  void stage_begin(const std::string& name, bool scheduled) noexcept {
    if (handle_ != nullptr) marey_profiler_stage_begin(handle_, name.c_str(), scheduled ? 1 : 0);
  }
  void stage_end(const std::string& name) noexcept {
    if (handle_ != nullptr) marey_profiler_stage_end(handle_, name.c_str());
  }

  /// Blocks until every closed window and every ended lease's skeleton is a sealed file, at most timeout_s (negative:
  /// no limit). kExhausted: the time ran out.
  Error wait(double timeout_s = 10.0) {
    return handle_ == nullptr ? Error{} : Error::from_c(marey_profiler_wait(handle_, timeout_s));
  }

  /// The first sealed trace whose sequence is greater than `after`; blocks up to timeout_s (0: doesn't). kExhausted:
  /// the time ran out; kNotFound: none, and none can come.
  Expected<Window> next_window(std::uint64_t after = 0, double timeout_s = 0) {
    if (handle_ == nullptr) return Error{ErrorCode::kNotFound, "this profiler is off"};
    marey_window from{};
    from.size = sizeof from;
    if (const int code = marey_profiler_next_window(handle_, after, timeout_s, &from); code != MAREY_OK) {
      return Error::from_c(code);
    }
    Window window;
    window.sequence = from.sequence;
    window.path = from.path;
    window.error = from.error;
    window.stage = from.stage;
    window.is_skeleton = from.is_skeleton != 0;
    window.complete = from.complete != 0;
    if (from.train_step != MAREY_UNKNOWN) window.train_step = from.train_step;
    window.unit = static_cast<Unit>(from.unit);
    window.first_unit = from.first_unit;
    window.last_unit = from.last_unit;
    window.recorded_units = from.recorded_units;
    window.planned_units = from.planned_units;
    window.events = from.events;
    window.lost = from.lost;
    window.bytes = from.bytes;
    return window;
  }
  /// Every trace sealed so far, in that order.
  [[nodiscard]] std::vector<Window> windows() {
    std::vector<Window> all;
    for (auto next = next_window(); next; next = next_window(all.back().sequence)) all.push_back(std::move(*next));
    return all;
  }

  [[nodiscard]] ProfilerStatus status() {
    ProfilerStatus status;
    if (handle_ == nullptr) {
      status.message = "this profiler is off";
      return status;
    }
    marey_status from{};
    from.size = sizeof from;
    if (const int code = marey_profiler_status(handle_, &from); code != MAREY_OK) {
      status.message = Error::from_c(code).message;
      return status;
    }
    status.running = from.running != 0;
    status.action = static_cast<Action>(from.action);
    if (from.train_step != MAREY_UNKNOWN) status.train_step = from.train_step;
    status.stage = from.stage;
    if (from.unit_number >= 0) status.unit_number = from.unit_number;
    status.units_seen = from.units_seen;
    if (from.first_planned_unit >= 0) status.first_planned_unit = from.first_planned_unit;
    status.windows_open = from.windows_open;
    status.windows_sealed = from.windows_sealed;
    status.windows_failed = from.windows_failed;
    status.events = from.events;
    status.lost = from.lost;
    status.starts_ignored = from.starts_ignored;
    status.message = from.message;
    return status;
  }

  /// For calls of the C ABI on this profiler; null when it is off.
  [[nodiscard]] marey_profiler* handle() const noexcept { return handle_; }

 private:
  explicit Profiler(marey_profiler* handle) noexcept : handle_(handle) {}

  void reset() noexcept {
    if (handle_ == nullptr) return;
    marey_profiler_stop(handle_, std::uncaught_exceptions() > exceptions_ ? 1 : 0);
    marey_profiler_destroy(std::exchange(handle_, nullptr));
  }

  marey_profiler* handle_ = nullptr;
  int exceptions_ = std::uncaught_exceptions();
};

/// A profiler's lease for a scope: starts it, and stops it when the scope is left, as failed when an exception leaves
/// it. Ends only what it began: for a profiler that ran before it does nothing.
class [[nodiscard]] Lease {
 public:
  [[nodiscard]] explicit Lease(Profiler& profiler, std::optional<std::int64_t> train_step = {}) : profiler_(&profiler) {
    owns_ = profiler.on() && !profiler.status().running && !profiler.start(train_step);
  }
  ~Lease() {
    if (owns_) (void)profiler_->stop(std::uncaught_exceptions() > exceptions_);
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

 private:
  Profiler* profiler_;
  bool owns_ = false;
  int exceptions_ = std::uncaught_exceptions();
};

/// Whether units are counted in a stage. Others keep their place in the skeleton.
enum class Counting : bool { kUnscheduled = false, kScheduled = true };

/// A stage for a scope: what the role does now. `Stage stage(profiler, "actor_update", Counting::kScheduled);`
class [[nodiscard]] Stage {
 public:
  [[nodiscard]] Stage(Profiler& profiler, std::string name, Counting counting = Counting::kUnscheduled)
      : profiler_(&profiler), name_(std::move(name)) {
    profiler_->stage_begin(name_, counting == Counting::kScheduled);
  }
  ~Stage() { profiler_->stage_end(name_); }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

 private:
  Profiler* profiler_;
  std::string name_;
};

/// A loop over units: each element is one unit, ticked when the loop moves on from it, and after the last the profiler
/// knows that no other unit began. Leaving the loop early (break, an exception) leaves its unit in flight. See
/// mini_batches().
template <typename Elements>
class UnitLoop {
 public:
  /// Elements is a reference for a container that lives elsewhere, else a container that the loop keeps.
  UnitLoop(Profiler& profiler, Unit unit, Elements&& elements)
      : profiler_(&profiler), unit_(unit), elements_(std::forward<Elements>(elements)) {}

  class Iterator {
   public:
    explicit Iterator(UnitLoop* loop) : loop_(loop), at_(std::begin(loop->elements_)), end_(std::end(loop->elements_)) {
      note_end();
    }
    decltype(auto) operator*() const { return *at_; }
    Iterator& operator++() {
      loop_->profiler_->tick(loop_->unit_);
      ++at_;
      note_end();
      return *this;
    }
    friend bool operator!=(const Iterator& it, std::default_sentinel_t) { return it.at_ != it.end_; }

   private:
    void note_end() {
      if (!(at_ != end_)) loop_->profiler_->end_units();
    }

    UnitLoop* loop_;
    decltype(std::begin(std::declval<UnitLoop&>().elements_)) at_;
    decltype(std::end(std::declval<UnitLoop&>().elements_)) end_;
  };

  [[nodiscard]] Iterator begin() { return Iterator(this); }
  [[nodiscard]] std::default_sentinel_t end() const noexcept { return {}; }

 private:
  Profiler* profiler_;
  Unit unit_;
  Elements elements_;
};

namespace detail {

/// 0, 1, ... as a container (std::views::iota does not compile with every compiler that Marey supports).
class Counter {
 public:
  explicit Counter(std::int64_t count) : count_(count > 0 ? count : 0) {}
  struct Iterator {
    std::int64_t number;
    std::int64_t operator*() const { return number; }
    Iterator& operator++() {
      ++number;
      return *this;
    }
    bool operator==(const Iterator&) const = default;
  };
  [[nodiscard]] Iterator begin() const { return {0}; }
  [[nodiscard]] Iterator end() const { return {count_}; }

 private:
  std::int64_t count_;
};

}  // namespace detail

/// `for (const Batch& batch : marey::units(profiler, marey::Unit::kMicroBatch, batches)) ...`, or a count, from 0.
template <typename Elements>
[[nodiscard]] auto units(Profiler& profiler, Unit unit, Elements&& elements) {
  if constexpr (std::integral<std::remove_cvref_t<Elements>>) {
    return UnitLoop<detail::Counter>(profiler, unit, detail::Counter(static_cast<std::int64_t>(elements)));
  } else {
    return UnitLoop<Elements>(profiler, unit, std::forward<Elements>(elements));
  }
}
/// `for (const Batch& batch : marey::mini_batches(profiler, batches)) ...`, or a count, from 0.
template <typename Elements>
[[nodiscard]] auto mini_batches(Profiler& profiler, Elements&& elements) {
  return units(profiler, Unit::kMiniBatch, std::forward<Elements>(elements));
}

/// Ends every lease of the process and waits, at most timeout_s, for all files: for a program that leaves without
/// running its destructors (`_exit`, a signal handler's thread). An ordinary exit does this by itself.
inline void finish(double timeout_s = 10.0) noexcept {
  marey_finish(timeout_s);
}

}  // namespace marey
