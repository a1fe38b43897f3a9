/* The same through the C ABI, as plain C. */
#include <marey/marey.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  marey_schedule schedule = {.size = sizeof schedule, .wait = 1, .warmup = 1, .active = 2, .repeat = 1};
  marey_profiler_options options = {
      .size = sizeof options,
      .schedule = &schedule,
      .unit = MAREY_MINI_BATCH,
      .role = "consumer",
      .out = argv[1],
      .rank = MAREY_UNKNOWN,
      .world_size = MAREY_UNKNOWN,
      .quiet = 1,
  };
  marey_profiler* profiler = NULL;
  if (marey_profiler_create(&options, &profiler) != MAREY_OK) {
    fprintf(stderr, "%s\n", marey_last_error());
    return 1;
  }
  const uint32_t forward = marey_intern("forward", strlen("forward"), NULL);
  marey_profiler_start(profiler, MAREY_UNKNOWN);
  for (int batch = 0; batch < 6; ++batch) {
    marey_arg number = {.key = marey_intern("batch", strlen("batch"), NULL), .type = MAREY_ARG_INT, .value.i = batch};
    const uint32_t token = marey_range_begin(forward, &number, 1);
    if (token != 0) marey_range_end(token);
    marey_profiler_step(profiler);
  }
  marey_profiler_stop(profiler, 0);
  if (marey_profiler_wait(profiler, 10.0) != MAREY_OK) {
    fprintf(stderr, "%s\n", marey_last_error());
    return 1;
  }
  marey_window window = {.size = sizeof window};
  uint64_t after = 0;
  while (marey_profiler_next_window(profiler, after, 0, &window) == MAREY_OK) {
    if (!window.is_skeleton) printf("%s\n", window.path);
    after = window.sequence;
  }
  marey_profiler_destroy(profiler);
  return 0;
}
