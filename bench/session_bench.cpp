// What profilers and windows cost: ticks, closing a window, sealing it, draining it, and its size on disk and in
// memory. Times in ns unless a counter's name says otherwise.

#include <cmath>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/timing.h"

namespace marey::bench {
namespace {

using benchmark::UserCounters;

constinit Site g_site{"bench"};

void record(std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) const Range range(g_site);
}

double step_cost(bool skeleton) {
  Profiler profiler = make_profiler({.wait = std::int64_t{1} << 39, .active = 1}, skeleton);
  (void)profiler.start();
  std::vector<double> times;
  for (std::int64_t i = 0; i < scaled(2000, 20); ++i) {
    times.push_back(time_batch(100, [&profiler] { profiler.step(); }));
    if (skeleton && i % 20 == 19) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  (void)profiler.stop();
  return median(times);
}

void step_unchanged(UserCounters& counters) {
  counters["no_skeleton"] = step_cost(false);
  counters["skeleton"] = step_cost(true);
}

struct Closing {
  std::vector<double> call_ns;
  std::vector<double> call_cpu_ns;
  std::vector<double> sealed_ns;
  std::vector<double> drain_cpu_ns;
  double lost = 0;
};

/// Records `count` ranges in one window and closes it by step() (or stop()). paced: with work between the ranges, so
/// that the drain keeps up, as it does in a real program; else as fast as it goes.
Closing close_window(std::int64_t count, bool by_stop, bool paced, int rounds) {
  Closing result;
  Work work(700);
  for (int round = 0; round < rounds; ++round) {
    Profiler profiler = make_profiler(by_stop ? Schedule{} : Schedule{.active = 1, .repeat = 1}, true);
    (void)profiler.start();
    record(100);
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const double cpu_before = other_threads_cpu_ns();
    if (paced) {
      for (std::int64_t i = 0; i < count; ++i) {
        const Range range(g_site);
        work();
      }
    } else {
      record(count);
    }
    const double begin_cpu = thread_cpu_ns();
    const double begin = now_ns();
    if (by_stop) {
      (void)profiler.stop();
    } else {
      profiler.step();
    }
    const double called = now_ns();
    result.call_cpu_ns.push_back(thread_cpu_ns() - begin_cpu);
    // The window's own file: what waits for the skeleton of a lease that still runs is not part of it.
    while (true) {
      auto window = profiler.next_window(0, 60);
      while (window && window->is_skeleton) window = profiler.next_window(window->sequence, 60);
      if (window) break;
    }
    const double sealed = now_ns();
    result.call_ns.push_back(called - begin);
    result.sealed_ns.push_back(sealed - begin);
    result.drain_cpu_ns.push_back((other_threads_cpu_ns() - cpu_before) / static_cast<double>(count));
    (void)profiler.stop();
    result.lost += static_cast<double>(last_window(profiler).lost);
  }
  return result;
}

void closing(UserCounters& counters, bool by_stop, bool paced) {
  for (const std::int64_t count : {1'000, 10'000, 100'000, 1'000'000}) {
    if (g_smoke && count > 10'000) continue;
    const Closing result =
        close_window(count, by_stop, paced, static_cast<int>(scaled(paced && count == 1'000'000 ? 5 : 9, 1)));
    const std::string suffix = "_1e" + std::to_string(static_cast<int>(std::log10(static_cast<double>(count)) + 0.5));
    counters["call" + suffix] = median(result.call_ns);
    counters["call_cpu" + suffix] = median(result.call_cpu_ns);
    counters["call_max" + suffix] = *std::max_element(result.call_ns.begin(), result.call_ns.end());
    counters["sealed" + suffix] = median(result.sealed_ns);
    counters["drain_cpu" + suffix] = median(result.drain_cpu_ns);
    counters["lost" + suffix] = result.lost;
  }
}

/// Fifty names, nested to depth four, durations spread over three decades.
void varied_size(UserCounters& counters) {
  std::vector<Name> names;
  for (int i = 0; i < 50; ++i) names.emplace_back("layer." + std::to_string(i) + ".forward");
  Work work(100);
  std::mt19937 random(7);
  std::lognormal_distribution<double> length(0.5, 1.2);
  std::uniform_int_distribution<std::size_t> name(0, names.size() - 1);
  const auto spend = [&] {
    for (int turns = static_cast<int>(length(random)); turns >= 0; --turns) work();
  };
  Profiler profiler = make_profiler({}, false);
  const double cpu_before = other_threads_cpu_ns();
  (void)profiler.start();
  const std::int64_t outer = scaled(100'000, 500);
  std::int64_t ranges = 0;
  for (std::int64_t i = 0; i < outer; ++i) {
    const Range a(names[name(random)]);
    spend();
    ++ranges;
    for (auto children = random() % 3; children > 0; --children) {
      const Range b(names[name(random)]);
      spend();
      ++ranges;
      if (random() % 2 == 0) {
        const Range c(names[name(random)]);
        spend();
        ++ranges;
        const Range d(names[name(random)]);
        ++ranges;
      }
    }
  }
  (void)profiler.stop();
  const Window window = last_window(profiler);
  counters["ranges"] = static_cast<double>(ranges);
  counters["drain_cpu"] = (other_threads_cpu_ns() - cpu_before) / static_cast<double>(ranges);
  counters["lost"] = static_cast<double>(window.lost);
  counters["bytes_per_range"] = static_cast<double>(window.bytes) / static_cast<double>(window.events);
}

/// Resident memory over an open window that is fed as fast as it goes, far past what the lanes hold.
void memory(UserCounters& counters) {
  Profiler profiler = make_profiler({}, false);
  const double before = resident_bytes();
  (void)profiler.start();
  double first_half = 0;
  double second_half = 0;
  const std::int64_t chunks = scaled(200, 4);
  for (std::int64_t i = 0; i < chunks; ++i) {
    record(100'000);
    double& peak = i < chunks / 2 ? first_half : second_half;
    peak = std::max(peak, resident_bytes() - before);
  }
  (void)profiler.stop();
  const Window window = last_window(profiler);
  counters["peak_first_half_mib"] = first_half / (1 << 20);
  counters["peak_second_half_mib"] = second_half / (1 << 20);
  counters["ranges"] = static_cast<double>(chunks) * 1e5;
  counters["lost"] = static_cast<double>(window.lost);
  // And at a pace that the drain keeps: what a real program sees.
  Work work(700);
  Profiler paced = make_profiler({}, false);
  const double paced_before = resident_bytes();
  (void)paced.start();
  double paced_peak = 0;
  for (std::int64_t i = 0; i < scaled(20, 1); ++i) {
    for (int j = 0; j < 100'000; ++j) {
      const Range range(g_site);
      work();
    }
    paced_peak = std::max(paced_peak, resident_bytes() - paced_before);
  }
  (void)paced.stop();
  counters["paced_peak_mib"] = paced_peak / (1 << 20);
  counters["paced_lost"] = static_cast<double>(last_window(paced).lost);
}

}  // namespace
}  // namespace marey::bench

int main(int argc, char** argv) {
  using namespace marey::bench;
  return run_benchmarks(argc, argv, [] {
    add_measurement("session/memory", memory);  // first, while nothing has grown yet
    add_measurement("session/step", step_unchanged);
    add_measurement("session/close_by_step", [](UserCounters& counters) { closing(counters, false, true); });
    add_measurement("session/close_by_stop", [](UserCounters& counters) { closing(counters, true, true); });
    add_measurement("session/close_burst", [](UserCounters& counters) { closing(counters, false, false); });
    add_measurement("session/varied_size", varied_size);
  });
}
