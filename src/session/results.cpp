#include "src/session/results.h"

#include <utility>

namespace marey::session {
namespace {

/// A deadline far enough for "no limit" that does not overflow.
std::chrono::steady_clock::time_point deadline_of(double timeout_s) {
  constexpr double kForeverS = 1e9;
  const double seconds = timeout_s < 0 || timeout_s > kForeverS ? kForeverS : timeout_s;
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

void Results::add(SealedTrace trace) {
  const std::lock_guard lock(mutex_);
  trace.sequence = traces_.size() + 1;
  if (!trace.is_skeleton) {
    --counts_.open;
    ++(trace.error.empty() ? counts_.sealed : counts_.failed);
    counts_.events += trace.events;
    counts_.lost += trace.lost;
  } else if (!trace.error.empty()) {
    ++counts_.failed;
  }
  traces_.push_back(std::move(trace));
  changed_.notify_all();
}

void Results::done() {
  const std::lock_guard lock(mutex_);
  --outstanding_;
  changed_.notify_all();
}

void Results::set_message(std::string message) {
  const std::lock_guard lock(mutex_);
  message_ = std::move(message);
}

Results::Counts Results::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::string Results::message() const {
  const std::lock_guard lock(mutex_);
  return message_;
}

Status Results::next(std::uint64_t after, double timeout_s, const std::function<bool()>& may_come,
                     const SealedTrace** out) {
  const auto deadline = deadline_of(timeout_s);
  std::unique_lock lock(mutex_);
  while (true) {
    if (after < traces_.size()) {
      *out = &traces_[after];
      return Status::ok();
    }
    if (outstanding_ == 0 && !may_come())
      return Status::not_found("no further trace can come: the profiler is stopped");
    if (changed_.wait_until(lock, deadline) == std::cv_status::timeout && after >= traces_.size()) {
      return Status::exhausted("no trace was sealed within the time given");
    }
  }
}

bool Results::wait(double timeout_s) {
  const auto deadline = deadline_of(timeout_s);
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [this] { return outstanding_ == 0; });
}

}  // namespace marey::session
