#include "src/recorder/clock.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <limits>

#include "marey/detail/clock.h"

namespace marey::recorder {
namespace {

std::int64_t read_ns(clockid_t id) {
  timespec now{};
  if (clock_gettime(id, &now) != 0) return 0;
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class RealClock final : public Clock {
 public:
  RealClock() : invariant_(counter_is_invariant()) {}

  [[nodiscard]] std::uint64_t ticks() const override {
    return invariant_ ? detail::counter_ticks() : detail::slow_ticks();
  }

  [[nodiscard]] ClockAnchor sample() const override {
    // The tightest of several brackets: a preemption between the reads shows as a wide one.
    ClockAnchor best;
    std::uint64_t best_width = std::numeric_limits<std::uint64_t>::max();
    for (int attempt = 0; attempt < 8; ++attempt) {
      const std::uint64_t before = ticks();
      const std::int64_t monotonic_ns = read_ns(CLOCK_MONOTONIC);
      const std::uint64_t after = ticks();
      if (after - before >= best_width) continue;
      best_width = after - before;
      best.ticks = before + (after - before) / 2;
      best.clocks.monotonic_ns = monotonic_ns;
      best.clocks.realtime_ns = read_ns(CLOCK_REALTIME);
      best.clocks.monotonic_raw_ns = read_ns(CLOCK_MONOTONIC_RAW);
      best.clocks.boottime_ns = read_ns(CLOCK_BOOTTIME);
      best.uncertainty_ns = static_cast<std::int64_t>(best_width / 2);
    }
    return best;
  }

 private:
  const bool invariant_;
};

}  // namespace

bool counter_is_invariant() {
#if defined(__x86_64__)
  static const bool invariant = [] {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    if (__get_cpuid(0x80000007U, &eax, &ebx, &ecx, &edx) == 0) return false;
    return (edx & (1U << 8)) != 0;
  }();
  return invariant;
#elif defined(__aarch64__)
  return true;  // the architecture requires a constant-rate cntvct
#else
  return false;
#endif
}

const Clock& real_clock() {
  static const RealClock instance;
  return instance;
}

TickMap::TickMap(const ClockAnchor& base, double ns_per_tick)
    : base_ticks_(base.ticks),
      base_ns_(base.clocks.monotonic_ns),
      multiplier_(static_cast<std::int64_t>(ns_per_tick * static_cast<double>(std::int64_t{1} << kShift))) {}

double TickMap::ticks_per_ns() const {
  return static_cast<double>(std::int64_t{1} << kShift) / static_cast<double>(multiplier_);
}

Calibration::Calibration(const Clock& clock) : clock_(clock), first_(clock.sample()) {}

TickMap Calibration::map_now(ClockAnchor* anchor) {
  *anchor = clock_.sample();
  std::int64_t baseline_ns = anchor->clocks.monotonic_ns - first_.clocks.monotonic_ns;
  if (baseline_ns >= 0 && baseline_ns < kMinBaselineNs) {
    const timespec rest{0, static_cast<long>(kMinBaselineNs - baseline_ns)};
    nanosleep(&rest, nullptr);
    *anchor = clock_.sample();
    baseline_ns = anchor->clocks.monotonic_ns - first_.clocks.monotonic_ns;
  }
  const auto baseline_ticks = static_cast<double>(anchor->ticks - first_.ticks);
  // A clock that did not move (a test's) or went backwards gives no rate: one tick is then one nanosecond.
  const double ns_per_tick =
      baseline_ns > 0 && baseline_ticks > 0 ? static_cast<double>(baseline_ns) / baseline_ticks : 1.0;
  return {*anchor, ns_per_tick};
}

std::int64_t Calibration::residual_ns(const TickMap& map, const ClockAnchor& anchor) {
  return map.to_ns(anchor.ticks) - anchor.clocks.monotonic_ns;
}

}  // namespace marey::recorder
