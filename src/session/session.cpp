#include "src/session/session.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "marey/detail/lane.h"
#include "src/base/log.h"
#include "src/event/string_table.h"
#include "src/session/profiler.h"

namespace marey::session {
namespace {

using std::chrono::milliseconds;

/// While something is recorded the drain comes round this often, sooner when lanes fill.
constexpr milliseconds kPeriod{5};
/// Controls that hurry nobody (units and stages outside windows) are gathered this long.
constexpr milliseconds kLazyPeriod{100};
/// A round that found this many slots is followed by another at once.
constexpr std::size_t kBusySlots = 32 * 1024;

std::atomic<Session*> g_session{nullptr};
std::atomic<std::uint64_t> g_generation{0};
std::mutex& creation_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

void at_exit() {
  if (Session* session = g_session.load(std::memory_order_acquire)) session->finish(10.0, "exit");
}

void in_forked_child() {
  // Only the forking thread is left. Everything of the parent's session is a copy that nobody may touch: its mutexes may
  // be held by threads that are not there. It is leaked; the child begins with none.
  detail::g_gate.fetch_and(detail::kGateSlowClock, std::memory_order_relaxed);
  g_generation.fetch_add(1, std::memory_order_relaxed);
  recorder::LaneRegistry::get().reset_after_fork();
  g_session.store(nullptr, std::memory_order_relaxed);
  SourceSet::get().reset_after_fork();
}

}  // namespace

/// Cuts each lane's run at the moment of the queue's snapshot, so that events of windows that are not known yet stay.
class Session::Consumer final : public recorder::LaneConsumer {
 public:
  Consumer(Session& session, std::uint64_t cut_ticks) : session_(session), cut_ticks_(cut_ticks) {}

  const detail::Slot* on_slots(recorder::Lane& lane, const detail::Slot* begin, const detail::Slot* end) override {
    const detail::Slot* cut = begin;
    while (cut < end && (cut->ticks < cut_ticks_ || cut->kind == detail::SlotKind::kPad)) cut += 1 + cut->extra;
    for (const auto& lease : session_.leases_) {
      if (lease->recording()) lease->on_slots(lane, begin, cut);
    }
    return cut;
  }
  void on_dropped(recorder::Lane& lane, std::uint64_t count, std::uint64_t last_ticks) override {
    for (const auto& lease : session_.leases_) {
      if (lease->recording()) lease->on_dropped(lane, count, session_.last_cut_ticks_, last_ticks);
    }
  }
  void on_retired(recorder::Lane&) override {}

 private:
  Session& session_;
  std::uint64_t cut_ticks_;
};

Session::Session(const Options& options) : options_(options), calibration_(*options.clock) {
  environment_.files = options_.files;
  environment_.calibration = &calibration_;
  environment_.clock = options_.clock;
  if (!options_.start_thread) return;
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "marey-drain");
  // A batch thread never preempts the thread that wakes it: step() and stop() go on while the drain waits for a free core or
  // for its fair share.
  const sched_param no_priority{};
  (void)pthread_setschedparam(thread_.native_handle(), SCHED_BATCH, &no_priority);
}

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Session& Session::get() {
  if (Session* session = g_session.load(std::memory_order_acquire)) return *session;
  const std::lock_guard lock(creation_mutex());
  if (Session* session = g_session.load(std::memory_order_acquire)) return *session;
  if (!recorder::counter_is_invariant()) detail::g_gate.fetch_or(detail::kGateSlowClock, std::memory_order_relaxed);
  auto* session = new Session(Options{});
  static const bool once = [] {
    pthread_atfork(nullptr, nullptr, in_forked_child);
    std::atexit(at_exit);
    return true;
  }();
  (void)once;
  g_session.store(session, std::memory_order_release);
  return *session;
}

std::uint64_t Session::generation() { return g_generation.load(std::memory_order_relaxed); }

std::uint64_t Session::post_locked(ControlBatch& controls) {
  const std::uint64_t now = options_.clock->ticks();
  bool urgent = false;
  for (Control& control : controls) {
    control.ticks = now;
    urgent = urgent || control.kind == Control::Kind::kWindowBegin || control.kind == Control::Kind::kWindowEnd ||
             control.kind == Control::Kind::kLeaseBegin || control.kind == Control::Kind::kLeaseEnd;
    queue_.push_back(std::move(control));
  }
  wake(urgent);
  return now;
}

void Session::wake(bool urgent) {
  // mutex_ is held. A sleeping drain is woken once; one that is on a timer anyway is left alone unless something ends.
  if (urgent && !urgent_) {
    urgent_ = true;
    wake_.notify_one();
  } else if (!urgent && drain_idle_ && !lazy_wake_) {
    lazy_wake_ = true;
    wake_.notify_one();
  }
}

std::uint64_t Session::post(ControlBatch controls) {
  const std::lock_guard lock(mutex_);
  return post_locked(controls);
}

std::uint64_t Session::post_window_begin(ControlBatch controls) {
  const std::lock_guard lock(mutex_);
  ++windows_open_;
  // Relaxed: which events belong is decided by stamps; the gate only saves the cost of those that would not.
  detail::g_gate.fetch_or(detail::kGateUser, std::memory_order_relaxed);
  return post_locked(controls);
}

std::uint64_t Session::post_window_end(ControlBatch controls) {
  const std::lock_guard lock(mutex_);
  int opens = 0;
  int ends = 0;
  for (const Control& control : controls) {
    opens += control.kind == Control::Kind::kWindowBegin ? 1 : 0;
    ends += control.kind == Control::Kind::kWindowEnd ? 1 : 0;
  }
  const std::uint64_t now = post_locked(controls);
  windows_open_ += opens - ends;
  if (windows_open_ == 0) detail::g_gate.fetch_and(~std::uint32_t{detail::kGateUser}, std::memory_order_relaxed);
  return now;
}

void Session::set_warming(bool on) {
  const std::lock_guard lock(mutex_);
  warming_ += on ? 1 : -1;
  if (on) {
    prefault_ = true;  // by the drain: touching pages takes milliseconds
    wake(true);
  }
}

void Session::add(Profiler* profiler) {
  const std::lock_guard lock(mutex_);
  profilers_.insert(profiler);
}

void Session::remove(Profiler* profiler) {
  const std::lock_guard lock(mutex_);
  profilers_.erase(profiler);
}

void Session::finish(double timeout_s, const char* reason) {
  std::vector<Profiler*> profilers;
  {
    const std::lock_guard lock(mutex_);
    profilers.assign(profilers_.begin(), profilers_.end());
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  for (Profiler* profiler : profilers) profiler->stop(reason);
  for (Profiler* profiler : profilers) {
    const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
    if (!profiler->results().wait(std::max(0.0, left.count()))) {
      base::log_line("some traces were not sealed in time; they are readable as .partial files");
      return;
    }
  }
}

double Session::measure_event_cost_ns() {
  // The same instructions as a recorded range, on a chunk of our own that nobody drains.
  constexpr int kRanges = 1000;
  alignas(64) static std::byte scratch[sizeof(detail::ChunkHeader) + 2 * sizeof(detail::Slot)];
  auto* slot = reinterpret_cast<volatile detail::Slot*>(scratch + sizeof(detail::ChunkHeader));
  const recorder::ClockAnchor before = options_.clock->sample();
  for (int i = 0; i < kRanges; ++i) {
    slot[0].ticks = options_.clock->ticks();
    slot[1].ticks = options_.clock->ticks();
  }
  const recorder::ClockAnchor after = options_.clock->sample();
  return static_cast<double>(after.clocks.monotonic_ns - before.clocks.monotonic_ns) / kRanges;
}

void Session::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const auto ready = [this] { return stopping_ || urgent_; };
    if (!urgent_ && !stopping_) {
      if (windows_open_ > 0 || warming_ > 0) {
        drain_idle_ = false;
        if (last_round_slots_ < kBusySlots) wake_.wait_for(lock, kPeriod, ready);
      } else if (!queue_.empty() || lazy_wake_) {
        drain_idle_ = false;
        lazy_wake_ = false;
        wake_.wait_for(lock, kLazyPeriod, ready);
      } else {
        // Nothing happens: no timer, no wake-ups.
        drain_idle_ = true;
        wake_.wait(lock, [this] { return stopping_ || urgent_ || lazy_wake_; });
        continue;
      }
    }
    urgent_ = false;
    lock.unlock();
    round();
    lock.lock();
  }
}

void Session::round() {
  std::vector<Control> controls;
  std::uint64_t cut_ticks = 0;
  bool prefault = false;
  {
    const std::lock_guard lock(mutex_);
    controls.swap(queue_);
    prefault = std::exchange(prefault_, false);
    // Every window that is not in `controls` begins at or after this stamp.
    cut_ticks = options_.clock->ticks();
  }
  if (prefault) recorder::LaneRegistry::get().prefault();
  if (environment_.event_cost_ns == 0) environment_.event_cost_ns = measure_event_cost_ns();
  bool ends = false;
  for (const Control& control : controls) {
    if (control.kind == Control::Kind::kLeaseBegin) leases_.push_back(control.extra->lease);
    control.lease->prepare(control, environment_);
    ends = ends || control.kind == Control::Kind::kWindowEnd || control.kind == Control::Kind::kLeaseEnd;
  }
  Consumer consumer(*this, cut_ticks);
  recorder::LaneRegistry& lanes = recorder::LaneRegistry::get();
  last_round_slots_ = lanes.drain(consumer);
  for (const Control& control : controls) control.lease->apply(control, environment_);
  if (ends) {
    // A thread may have been interrupted between its stamp and its commit: look once more before sealing.
    std::this_thread::yield();
    last_round_slots_ += lanes.drain(consumer);
    for (const auto& lease : leases_) lease->seal_ended(environment_);
    std::erase_if(leases_, [](const auto& lease) { return lease->finished(); });
    bool quiet = false;
    {
      const std::lock_guard lock(mutex_);
      quiet = windows_open_ == 0 && warming_ == 0;
    }
    if (quiet) lanes.trim();
  }
  for (const auto& lease : leases_) lease->flush();
  last_cut_ticks_ = cut_ticks;
}

}  // namespace marey::session
