#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/status.h"
#include "src/schedule/schedule.h"

namespace marey::session {

/// What became of one trace.
struct SealedTrace {
  std::uint64_t sequence = 0;
  std::string path;
  std::string error;  ///< "" or why the file is not whole
  std::string stage;
  bool is_skeleton = false;
  bool complete = false;
  std::optional<std::int64_t> train_step;
  schedule::Unit unit = schedule::Unit::kMiniBatch;
  std::int64_t first_unit = 0;
  std::int64_t last_unit = 0;
  std::int64_t recorded_units = 0;
  std::int64_t planned_units = 0;
  std::uint64_t events = 0;
  std::uint64_t lost = 0;
  std::uint64_t bytes = 0;
};

/// Where the drain leaves its results and training threads look for them. One per profiler; all members any thread.
class Results {
 public:
  struct Counts {
    std::uint64_t open = 0;    ///< windows that have a file and are not sealed
    std::uint64_t sealed = 0;  ///< windows, skeleton traces left out
    std::uint64_t failed = 0;
    std::uint64_t events = 0;
    std::uint64_t lost = 0;
  };

  /// A lease ended, or a window closed: wait() waits until done() says that it is sealed.
  void expect() {
    const std::lock_guard lock(mutex_);
    ++outstanding_;
  }
  void window_opened() {
    const std::lock_guard lock(mutex_);
    ++counts_.open;
  }
  /// A window that was opened is gone without a file.
  void window_discarded() {
    const std::lock_guard lock(mutex_);
    --counts_.open;
  }
  void add(SealedTrace trace);
  /// One expected thing is done; `message` (if any) becomes status().message.
  void done();
  void set_message(std::string message);

  [[nodiscard]] Counts counts() const;
  [[nodiscard]] std::string message() const;
  /// First trace with sequence > after. Null status OK = found; kExhausted = time ran out; kNotFound = none can come
  /// (nothing is outstanding and `may_come` says that no lease runs).
  Status next(std::uint64_t after, double timeout_s, const std::function<bool()>& may_come, const SealedTrace** out);
  /// Waits until nothing is outstanding.
  bool wait(double timeout_s);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<SealedTrace> traces_;  // a deque: pointers handed out stay valid
  std::uint64_t outstanding_ = 0;
  Counts counts_;
  std::string message_;
};

}  // namespace marey::session
