#pragma once

// What the benchmarks share: short batches of several bodies in turn, so that a noisy neighbour disturbs all of them
// alike and ratios hold where absolute times do not.

#include <benchmark/benchmark.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "marey/detail/clock.h"
#include "marey/marey.hpp"

namespace marey::bench {

/// Short runs that show that everything works and say nothing about time.
inline bool g_smoke = false;

inline std::int64_t scaled(std::int64_t full, std::int64_t smoke) {
  return g_smoke ? smoke : full;
}

inline double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// CPU time of this thread: leaves out what other programs take from it, keeps page faults.
inline double thread_cpu_ns() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// ns per tick of the cycle counter, measured once.
inline double ns_per_tick() {
  static const double rate = [] {
    const double begin_ns = now_ns();
    const std::uint64_t begin = detail::counter_ticks();
    while (now_ns() - begin_ns < (g_smoke ? 5e6 : 1e8)) {
    }
    const std::uint64_t end = detail::counter_ticks();
    return (now_ns() - begin_ns) / static_cast<double>(end - begin);
  }();
  return rate;
}

inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

/// ns per turn of `body`, one value a batch of `turns`.
template <typename Body>
[[gnu::always_inline]] inline double time_batch(std::int64_t turns, Body body) {
  const std::uint64_t begin = detail::counter_ticks();
  for (std::int64_t i = 0; i < turns; ++i) body();
  const std::uint64_t end = detail::counter_ticks();
  return static_cast<double>(end - begin) * ns_per_tick() / static_cast<double>(turns);
}

/// A folder that is gone at the end of the process.
inline const std::string& scratch() {
  static const struct Folder {
    std::string path;
    Folder() {
      std::string name = (std::filesystem::temp_directory_path() / "marey-bench-XXXXXX").string();
      if (mkdtemp(name.data()) == nullptr) {
        std::fprintf(stderr, "bench: cannot create '%s'\n", name.c_str());
        std::exit(1);
      }
      path = name;
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  } folder;
  return folder.path;
}

inline Profiler make_profiler(Schedule schedule, bool skeleton, Unit unit = Unit::kMiniBatch) {
  auto created =
      Profiler::create({.schedule = schedule, .unit = unit, .out = scratch(), .skeleton = skeleton, .quiet = true});
  if (!created) {
    std::fprintf(stderr, "bench: %s\n", created.error().message.c_str());
    std::exit(1);
  }
  return std::move(created).value();
}

/// The last sealed window (not a skeleton) of a profiler, after all are sealed.
inline Window last_window(Profiler& profiler) {
  if (const Error error = profiler.wait(60)) {
    std::fprintf(stderr, "bench: %s\n", error.message.c_str());
    std::exit(1);
  }
  Window last;
  for (Window& window : profiler.windows()) {
    if (!window.is_skeleton) last = std::move(window);
  }
  std::error_code ignored;
  std::filesystem::remove(last.path, ignored);
  return last;
}

/// CPU time of every thread of the process but this one, in ns.
inline double other_threads_cpu_ns() {
  const std::string self = std::to_string(gettid());
  double total = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == self) continue;
    std::ifstream file(task.path() / "schedstat");
    double on_cpu = 0;
    if (file >> on_cpu) total += on_cpu;
  }
  return total;
}

inline double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0;
  double resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE));
}

/// Arithmetic that keeps the core busy, about `target_ns` long: independent chains, so that whatever runs beside it
/// takes its turn rather than hide in the latency of one chain.
class Work {
 public:
  explicit Work(double target_ns) {
    turns_ = 64;
    std::vector<double> times;
    for (int i = 0; i < 2000; ++i) times.push_back(time_batch(10, [this] { (*this)(); }));
    turns_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(64 * target_ns / median(times)));
  }
  [[gnu::noinline]] void operator()() {
    std::uint64_t a = state_[0], b = state_[1], c = state_[2], d = state_[3], e = state_[4], f = state_[5];
    for (std::int64_t i = 0; i < turns_; ++i) {
      a = (a ^ (a >> 7)) + b;
      b = (b ^ (b << 5)) + c;
      c = (c ^ (c >> 11)) + d;
      d = (d ^ (d << 3)) + e;
      e = (e ^ (e >> 9)) + f;
      f = (f ^ (f << 13)) + a;
    }
    state_[0] = a, state_[1] = b, state_[2] = c, state_[3] = d, state_[4] = e, state_[5] = f;
  }

 private:
  std::uint64_t state_[6] = {1, 2, 3, 4, 5, 6};
  std::int64_t turns_;
};

/// Registers through `add`, then runs what the command line asks for.
inline int run_benchmarks(int argc, char** argv, void (*add)()) {
  std::vector<char*> args;
  for (int i = 0; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--smoke") {
      g_smoke = true;
    } else {
      args.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(args.size());
  benchmark::Initialize(&count, args.data());
  if (benchmark::ReportUnrecognizedArguments(count, args.data())) return 1;
  add();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

/// One measurement that yields counters; its own time means nothing.
template <typename Body>
void add_measurement(const std::string& name, Body body) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [body](benchmark::State& state) {
                                 for (auto _ : state) {
                                   state.SetIterationTime(1e-9);
                                   body(state.counters);
                                 }
                               })
      ->Iterations(1)
      ->UseManualTime();
}

}  // namespace marey::bench
