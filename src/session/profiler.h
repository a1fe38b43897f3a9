#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "src/base/status.h"
#include "src/schedule/schedule.h"
#include "src/session/lease.h"
#include "src/session/results.h"
#include "src/session/session.h"

namespace marey::session {

/// What a window records beyond the skeleton.
struct Contents {
  std::vector<std::string> names;  ///< as given, unsupported ones left out
  std::uint32_t class_mask = 0;
  bool shapes = false;
};
/// Error for an unknown word; words that are known but not supported yet are named once in the log and left out.
Result<Contents> parse_contents(const std::vector<std::string>& words);

/// A handle with a role, a schedule, contents and an output folder. All members from any thread; none blocks on I/O
/// after create().
class Profiler {
 public:
  struct Options {
    std::optional<schedule::Schedule> schedule;
    schedule::Unit unit = schedule::Unit::kMiniBatch;
    std::string role;
    std::string out;
    std::vector<std::string> contents;
    std::vector<std::int64_t> steps;
    std::vector<std::string> stages;
    std::int64_t rank = 0;
    std::int64_t world_size = 1;
    std::string parallel;
    std::string job;
    bool skeleton = true;
    bool quiet = false;
  };
  struct Snapshot {
    bool running = false;
    schedule::Action action = schedule::Action::kNone;
    std::optional<std::int64_t> train_step;
    std::string stage;
    std::optional<std::int64_t> unit_number;
    std::uint64_t units_seen = 0;
    std::optional<std::int64_t> first_planned_unit;
    std::uint64_t starts_ignored = 0;
    Results::Counts counts;
    std::string message;
  };

  /// Validates everything and creates the folder, so that misuse is told before training begins.
  static Result<std::unique_ptr<Profiler>> create(Session& session, Options options);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void start(std::optional<std::int64_t> train_step);
  /// Ends one unit of the schedule's. While the profiler has nothing to note this is one atomic decrement.
  void step() {
    // Relaxed: the count is all that is shared; whoever takes it below zero goes on under the mutex.
    if (quiet_steps_.fetch_sub(1, std::memory_order_relaxed) > 0) return;
    tick(options_.unit);
  }
  void tick(schedule::Unit unit);
  void end_units();
  void stop(const char* reason);
  void stage_begin(const std::string& name, bool scheduled);
  void stage_end(const std::string& name);

  [[nodiscard]] Snapshot snapshot();
  [[nodiscard]] Results& results() { return *results_; }
  [[nodiscard]] bool running() const { return running_.load(std::memory_order_acquire); }

 private:
  struct Stage {
    std::uint32_t name = 0;
    std::string text;
    bool scheduled = false;
  };
  struct OpenWindow {
    std::uint64_t id = 0;
    std::int64_t first = 0;
    std::int64_t planned = 0;
    std::int64_t recorded = 0;
  };
  /// Why the state changes, as far as windows care.
  struct Change {
    const char* window_reason = "schedule";
    bool units_over = false;  ///< the unit in flight never existed
    bool stopping = false;
    bool failed = false;
  };

  Profiler(Session& session, Options options, Contents contents);
  void settle_quiet_steps();
  void grant_quiet_steps();
  void begin_units(ControlBatch* controls, schedule::Unit from);
  void cancel_units(ControlBatch* controls);
  [[nodiscard]] schedule::Action action_now() const;
  [[nodiscard]] bool applies_here() const;
  [[nodiscard]] std::int64_t position() const { return numbers_[static_cast<std::size_t>(options_.unit)]; }
  [[nodiscard]] std::int64_t label(schedule::Unit unit) const;
  /// Posts `ending` (stamped as the moment at which the old state ends), moves windows and sources to the state that
  /// holds now, and posts `beginning` with the new state's stamp.
  void transition(std::unique_lock<std::mutex>& lock, ControlBatch ending, ControlBatch beginning,
                  const Change& change);
  Control control(Control::Kind kind) const;
  Control control_with_extra(Control::Kind kind) const;
  Control window_end(const Change& change);
  Control window_begin();
  [[nodiscard]] std::string why_nothing(bool failed) const;
  void log_plan() const;

  Session& session_;
  const Options options_;
  const Contents contents_;
  const std::shared_ptr<Results> results_;

  /// Steps that may pass without a look: > 0 only while no skeleton is kept and the action is far from changing, or
  /// while the profiler does not run.
  std::atomic<std::int64_t> quiet_steps_{0};

  std::mutex mutex_;  ///< all below; taken before the session's mutex, never held while a source is called
  /// Written under mutex_; read without it by running(), which is called with a lock of Results held.
  std::atomic<bool> running_{false};
  std::int64_t granted_ = 0;  ///< what quiet_steps_ was set to
  std::shared_ptr<Lease> lease_;
  std::optional<std::int64_t> train_step_base_;
  std::array<std::int64_t, 3> numbers_{};  ///< of the current unit of each kind, from 0
  std::array<bool, 3> ticked_{};           ///< this kind was ticked in this lease
  bool units_current_ = false;             ///< mini-batches and micro-batches are being counted now
  bool stages_used_ = false;               ///< units are counted in scheduled stages alone
  bool loop_over_ = false;                 ///< end_units() was called and no loop began since
  std::vector<Stage> stages_;
  schedule::Action action_ = schedule::Action::kNone;
  bool warming_ = false;
  std::optional<OpenWindow> window_;
  std::uint64_t epoch_ = 0;  ///< grows at each change, to notice one made while the mutex was free
  std::uint64_t units_seen_ = 0;
  std::uint64_t windows_begun_ = 0;
  std::uint64_t starts_ignored_ = 0;
  std::uint64_t scheduled_stages_ = 0;
  bool step_matched_ = false;  ///< a train step of `steps` was reached
};

}  // namespace marey::session
