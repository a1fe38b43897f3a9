#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "src/base/file_output.h"
#include "src/recorder/clock.h"
#include "src/recorder/lane_registry.h"
#include "src/session/control.h"
#include "src/session/lease.h"
#include "src/session/source_set.h"

namespace marey::session {

class Profiler;

/// The one process-wide object that owns windows, recorder and sources: takes controls from training threads, and runs
/// the drain that turns lanes and controls into files.
class Session {
 public:
  struct Options {
    base::FileSystem* files = &base::real_file_system();
    const recorder::Clock* clock = &recorder::real_clock();
    bool start_thread = true;  ///< false: the test calls drain_now()
  };

  explicit Session(const Options& options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// The process's session; replaced by a fresh one in a fork's child. Never destroyed.
  static Session& get();
  /// Grows by one in each forked child: a handle made before the fork is inert after it.
  static std::uint64_t generation();

  // ---- training threads ----

  /// Queues controls as one moment: all get the same stamp, which is returned. Wakes the drain when something ends or
  /// begins; other controls wait for its next round.
  std::uint64_t post(ControlBatch controls);
  /// A window opens: detail is recorded from here on. The stamp is taken after the gate opened.
  std::uint64_t post_window_begin(ControlBatch controls);
  /// A window ends: stamp, then the gate closes unless another window is open.
  std::uint64_t post_window_end(ControlBatch controls);

  SourceSet& sources() { return SourceSet::get(); }
  [[nodiscard]] base::FileSystem& files() const { return *options_.files; }
  [[nodiscard]] const recorder::Clock& clock() const { return *options_.clock; }

  void add(Profiler* profiler);
  void remove(Profiler* profiler);
  /// Ends every lease (reason in the files) and waits, bounded, until all is sealed.
  void finish(double timeout_s, const char* reason);
  /// A profiler has armed sources: the drain discards what they produce until a window opens.
  void set_warming(bool on);

  // ---- drain ----

  /// One round of the drain on this thread; only without a drain thread.
  void drain_now() { round(); }

 private:
  class Consumer;

  std::uint64_t post_locked(ControlBatch& controls);
  void wake(bool urgent);
  void run();
  void round();
  double measure_event_cost_ns();

  Options options_;
  recorder::Calibration calibration_;

  std::mutex mutex_;  ///< queue_, gate, counters; never held across I/O, sources or user code
  std::vector<Control> queue_;
  int windows_open_ = 0;
  int warming_ = 0;
  bool prefault_ = false;
  bool urgent_ = false;
  bool lazy_wake_ = false;
  bool drain_idle_ = true;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::set<Profiler*> profilers_;

  // Drain only.
  std::vector<std::shared_ptr<Lease>> leases_;
  std::uint64_t last_cut_ticks_ = 0;
  Lease::Environment environment_;  ///< windows keep a reference
  std::size_t last_round_slots_ = 0;
  std::thread thread_;
};

}  // namespace marey::session
