#pragma once

#include <time.h>

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace marey::detail {

/// Reads the raw cycle counter: TSC on x86-64, cntvct on aarch64, CLOCK_MONOTONIC elsewhere. Unordered on purpose: a
/// fence would cost more than the range it times. Whether the counter can be trusted is decided once by the library;
/// where it is not invariant the gate carries kGateSlowClock and slow_ticks() is used instead.
inline std::uint64_t counter_ticks() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
#endif
}

[[gnu::noinline, gnu::cold]] inline std::uint64_t slow_ticks() noexcept {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace marey::detail
