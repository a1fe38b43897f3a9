// Records a small run through the C ABI, for tests that read the files with other tools: nested ranges with arguments
// of every type, marks, crossing ranges, nasty names, several threads, stages and units, one window of two
// mini-batches.
//
//   write_sample_trace FOLDER [RANGES_PER_UNIT]

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "marey/marey.h"

namespace {

std::uint32_t id(const std::string& name, const char* category = nullptr) {
  return marey_intern(name.data(), name.size(), category);
}

void work(int unit, int ranges) {
  static const std::vector<std::string> names = {"forward",
                                                 "quote\"backslash\\newline\n",
                                                 "nul\0inside",
                                                 "bad\xff\xfeutf8",
                                                 "\xED\xA0\x80 surrogate",
                                                 "emoji \xF0\x9F\x8E\x9E",
                                                 std::string(3000, 'x'),
                                                 ""};
  for (int i = 0; i < ranges; ++i) {
    const marey_arg args[] = {
        {id("unit", "arg"), MAREY_ARG_INT, {.i = unit}, 0},
        {id("loss", "arg"), MAREY_ARG_DOUBLE, {.d = i % 3 == 0 ? std::nan("") : i * 0.5}, 0},
        {id("last", "arg"), MAREY_ARG_BOOL, {.i = i + 1 == ranges}, 0},
        {id("text", "arg"), MAREY_ARG_STRING, {.s = "value \"quoted\""}, 14},
    };
    const std::uint32_t outer = marey_range_begin(id("outer"), args, 4);
    const std::uint32_t inner = marey_range_begin(
        id(names[static_cast<std::size_t>(i) % names.size()], i % 2 == 0 ? nullptr : "phase"), nullptr, 0);
    if (i % 5 == 0) marey_mark(id("mark"), args, 1);
    marey_range_end(inner);
    marey_range_end(outer);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  const int ranges = argc > 2 ? std::atoi(argv[2]) : 20;
  marey_schedule schedule{sizeof(marey_schedule), 1, 0, 1, 2, 1, 0};
  marey_profiler_options options{};
  options.size = sizeof options;
  options.schedule = &schedule;
  options.unit = MAREY_MINI_BATCH;
  options.role = "actor";
  options.out = argv[1];
  options.rank = 3;
  options.world_size = 8;
  options.parallel = "tp1-pp0-dp2";
  options.quiet = 1;
  marey_profiler* profiler = nullptr;
  if (marey_profiler_create(&options, &profiler) != 0) {
    std::fprintf(stderr, "%s\n", marey_last_error());
    return 1;
  }
  marey_profiler_start(profiler, 5);
  marey_profiler_stage_begin(profiler, "rollout", 0);
  work(-1, ranges);
  marey_profiler_stage_end(profiler, "rollout");
  marey_profiler_stage_begin(profiler, "actor_update", 1);
  for (int unit = 0; unit < 6; ++unit) {
    for (int micro = 0; micro < 2; ++micro) {
      std::thread other(work, unit, ranges);
      work(unit, ranges);
      const std::uint64_t a = marey_async_begin(id("crossing a"), nullptr, 0);
      const std::uint64_t b = marey_async_begin(id("crossing b"), nullptr, 0);
      marey_async_end(a, id("crossing a"));
      marey_async_end(b, id("crossing b"));
      other.join();
      marey_profiler_tick(profiler, MAREY_MICRO_BATCH);
    }
    marey_profiler_step(profiler);
  }
  marey_profiler_stage_end(profiler, "actor_update");
  marey_profiler_tick(profiler, MAREY_TRAIN_STEP);
  marey_profiler_stop(profiler, 0);
  marey_profiler_destroy(profiler);
  return 0;
}
