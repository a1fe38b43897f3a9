#pragma once

#include <cstdint>
#include <string>

#include "src/trace/writer.h"

namespace marey::recorder {

/// Raw counter and the system's clocks, sampled as one moment.
struct ClockAnchor {
  std::uint64_t ticks = 0;
  trace::ClockSample clocks;
  std::int64_t uncertainty_ns = 0;  ///< half of the counter bracket around the CLOCK_MONOTONIC read
};

/// Where time comes from. The real one reads the cycle counter; tests give their own.
class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual std::uint64_t ticks() const = 0;
  [[nodiscard]] virtual ClockAnchor sample() const = 0;
};

/// The process's clock: cycle counter where it is invariant, else CLOCK_MONOTONIC in ns.
const Clock& real_clock();

/// True when the cycle counter runs at a constant rate in all power states (x86: CPUID 8000'0007h EDX bit 8; aarch64:
/// always).
bool counter_is_invariant();

/// Affine map from ticks to CLOCK_MONOTONIC ns. Fixed while a trace is recorded, so that differences and order are
/// exact.
class TickMap {
 public:
  TickMap() = default;
  TickMap(const ClockAnchor& base, double ns_per_tick);

  [[nodiscard]] std::int64_t to_ns(std::uint64_t ticks) const {
    const auto delta = static_cast<std::int64_t>(ticks - base_ticks_);  // wraps to negative for earlier ticks
    return base_ns_ + static_cast<std::int64_t>((static_cast<__int128>(delta) * multiplier_) >> kShift);
  }
  [[nodiscard]] double ticks_per_ns() const;

 private:
  static constexpr int kShift = 32;
  std::uint64_t base_ticks_ = 0;
  std::int64_t base_ns_ = 0;
  std::int64_t multiplier_ = std::int64_t{1} << kShift;
};

/// Rate of the counter against CLOCK_MONOTONIC, from the first anchor of the process to the latest: the longer the
/// process runs the better it gets (100 ns of sampling error over one second is 0.1 ppm).
class Calibration {
 public:
  explicit Calibration(const Clock& clock);

  /// Samples now and returns the map for a trace that begins now. Sleeps (only the drain calls this) until the baseline
  /// is at least `kMinBaselineNs` long.
  [[nodiscard]] TickMap map_now(ClockAnchor* anchor);
  /// Counter against CLOCK_MONOTONIC at `anchor`, in ns, for a map made earlier.
  static std::int64_t residual_ns(const TickMap& map, const ClockAnchor& anchor);

 private:
  static constexpr std::int64_t kMinBaselineNs = 20'000'000;
  const Clock& clock_;
  ClockAnchor first_;
};

}  // namespace marey::recorder
