// What a range costs on the training thread. Counters are ns unless their name says otherwise; bench/run.py puts them
// against F, two reads of the cycle counter in the same run.

#include <atomic>
#include <barrier>
#include <thread>
#include <vector>

#include "bench/timing.h"

namespace marey::bench {
namespace {

using benchmark::UserCounters;

constinit Site g_site{"bench"};

[[gnu::always_inline]] inline void two_counter_reads() {
  benchmark::DoNotOptimize(detail::counter_ticks());
  benchmark::DoNotOptimize(detail::counter_ticks());
}
[[gnu::always_inline]] inline void one_range() {
  const Range range(g_site);
  asm volatile("" ::: "memory");
}
[[gnu::always_inline]] inline void one_range_c(std::uint32_t name) {
  const std::uint32_t token = marey_range_begin(name, nullptr, 0);
  asm volatile("" ::: "memory");
  if (token != 0) marey_range_end(token);
}
/// The slots of a range with a stamp that costs nothing.
[[gnu::always_inline]] inline void one_range_without_clock(std::uint64_t now, std::uint32_t name) {
  (void)detail::append(now, detail::SlotKind::kBegin, name, detail::EventClass::kUser);
  asm volatile("" ::: "memory");
  (void)detail::append(now, detail::SlotKind::kEnd, name, detail::EventClass::kUser);
}

/// A profiler with an open window, warm: this thread has a lane and the pool has pages.
Profiler open_window() {
  Profiler profiler = make_profiler({}, false);
  (void)profiler.start();
  for (int i = 0; i < 1000; ++i) one_range();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return profiler;
}

/// The window as sealed. A benchmark of a recorder that recorded nothing says nothing.
Window close_window(Profiler& profiler) {
  (void)profiler.stop();
  Window window = last_window(profiler);
  if (window.events == 0) {
    std::fprintf(stderr, "bench: the window holds no range\n");
    std::exit(1);
  }
  return window;
}

/// Medians: batches of every body in turn, slowly enough that the drain keeps up.
void recorded(UserCounters& counters) {
  Profiler profiler = open_window();
  const std::uint32_t name = g_site.id();
  constexpr std::int64_t kTurns = 100;
  std::vector<double> clock, range, range_c, without_clock, with_arg;
  for (std::int64_t i = 0; i < scaled(10'000, 50); ++i) {
    clock.push_back(time_batch(kTurns, two_counter_reads));
    range.push_back(time_batch(kTurns, one_range));
    range_c.push_back(time_batch(kTurns, [=] { one_range_c(name); }));
    const std::uint64_t stamp = detail::counter_ticks();
    without_clock.push_back(time_batch(kTurns, [=] { one_range_without_clock(stamp, name); }));
    with_arg.push_back(time_batch(kTurns, [i] { const Range with(g_site, arg<"i">(i)); }));
    if (i % 50 == 49) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const Window window = close_window(profiler);
  counters["lost"] = static_cast<double>(window.lost);
  counters["clock"] = median(clock);
  counters["range"] = median(range);
  counters["range_c_abi"] = median(range_c);
  counters["range_without_clock"] = median(without_clock);
  counters["range_with_argument"] = median(with_arg);
}

template <typename Body>
[[gnu::always_inline]] inline double cpu_of(std::int64_t turns, Body body) {
  const double begin = thread_cpu_ns();
  for (std::int64_t i = 0; i < turns; ++i) body();
  return (thread_cpu_ns() - begin) / static_cast<double>(turns);
}

/// Means of 10^6 in one go, as fast as it goes, with the drain running beside it: CPU time of this thread.
void recorded_mean(UserCounters& counters) {
  std::vector<double> clock, range;
  double lost = 0;
  const std::int64_t turns = scaled(1'000'000, 1000);
  for (int round = 0; round < scaled(9, 1); ++round) {
    Profiler profiler = open_window();
    clock.push_back(cpu_of(turns, two_counter_reads));
    range.push_back(cpu_of(turns, one_range));
    lost += static_cast<double>(close_window(profiler).lost);
  }
  counters["lost"] = lost;
  counters["clock"] = median(clock);
  counters["range"] = median(range);
}

void next_to_work(UserCounters& counters) {
  Work work(215);
  Profiler profiler = open_window();
  constexpr std::int64_t kTurns = 20;
  std::vector<double> alone, clock, range;
  for (std::int64_t i = 0; i < scaled(20'000, 50); ++i) {
    alone.push_back(time_batch(kTurns, [&work] { work(); }));
    clock.push_back(time_batch(kTurns, [&work] {
      benchmark::DoNotOptimize(detail::counter_ticks());
      work();
      benchmark::DoNotOptimize(detail::counter_ticks());
    }));
    range.push_back(time_batch(kTurns, [&work] {
      const Range around(g_site);
      work();
    }));
  }
  counters["lost"] = static_cast<double>(close_window(profiler).lost);
  counters["work"] = median(alone);
  counters["clock"] = median(clock) - median(alone);
  counters["range"] = median(range) - median(alone);
}

void closed(UserCounters& counters) {
  const std::uint32_t name = g_site.id();
  constexpr std::int64_t kTurns = 1000;
  std::vector<double> empty, range, range_c, with_args;
  for (std::int64_t i = 0; i < scaled(10'000, 50); ++i) {
    empty.push_back(time_batch(kTurns, [] { asm volatile("" ::: "memory"); }));
    range.push_back(time_batch(kTurns, one_range));
    range_c.push_back(time_batch(kTurns, [=] { one_range_c(name); }));
    with_args.push_back(time_batch(kTurns, [i] {
      const Range with(g_site, arg<"i">(i), arg("kind", "bench"));
      asm volatile("" ::: "memory");
    }));
  }
  counters["empty_loop"] = median(empty);
  counters["range"] = median(range);
  counters["range_c_abi"] = median(range_c);
  counters["range_with_arguments"] = median(with_args);
}

struct OnThreads {
  double clock;
  double range;
};

/// Medians of batches on `threads` threads at once; the slowest thread's. Two counter reads are measured there too:
/// where the threads are two halves of one core, everything is slower for both.
OnThreads on_threads(int threads) {
  std::barrier ready(threads);
  std::vector<OnThreads> medians(static_cast<std::size_t>(threads));
  std::vector<std::thread> all;
  for (std::size_t t = 0; t < medians.size(); ++t) {
    all.emplace_back([&, t] {
      std::vector<double> clock, range;
      for (int i = 0; i < 1000; ++i) one_range();
      ready.arrive_and_wait();
      for (std::int64_t i = 0; i < scaled(2000, 20); ++i) {
        clock.push_back(time_batch(100, two_counter_reads));
        range.push_back(time_batch(100, one_range));
      }
      medians[t] = {median(clock), median(range)};
    });
  }
  for (std::thread& thread : all) thread.join();
  return *std::max_element(medians.begin(), medians.end(),
                           [](const OnThreads& a, const OnThreads& b) { return a.range < b.range; });
}

void two_threads(UserCounters& counters) {
  std::vector<double> one, two, one_clock, two_clock;
  double lost = 0;
  for (int round = 0; round < scaled(9, 1); ++round) {
    Profiler profiler = open_window();
    const OnThreads alone = on_threads(1);
    const OnThreads together = on_threads(2);
    lost += static_cast<double>(close_window(profiler).lost);
    one.push_back(alone.range);
    one_clock.push_back(alone.clock);
    two.push_back(together.range);
    two_clock.push_back(together.clock);
  }
  counters["lost"] = lost;
  counters["one"] = median(one);
  counters["one_clock"] = median(one_clock);
  counters["two"] = median(two);
  counters["two_clock"] = median(two_clock);
}

}  // namespace
}  // namespace marey::bench

int main(int argc, char** argv) {
  using namespace marey::bench;
  return run_benchmarks(argc, argv, [] {
    add_measurement("range/closed", closed);
    add_measurement("range/recorded", recorded);
    add_measurement("range/recorded_mean", recorded_mean);
    add_measurement("range/next_to_work", next_to_work);
    add_measurement("range/two_threads", two_threads);
  });
}
