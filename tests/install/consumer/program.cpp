// Records mini-batches 2 and 3 of six through the C++ API, and prints the trace's path.
#include <cstdio>
#include <marey/marey.hpp>

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto profiler = marey::Profiler::create({.schedule = {.wait = 1, .warmup = 1, .active = 2, .repeat = 1},
                                           .role = "consumer",
                                           .out = argv[1],
                                           .quiet = true});
  if (!profiler) {
    std::fprintf(stderr, "%s\n", profiler.error().message.c_str());
    return 1;
  }
  {
    const marey::Lease lease(*profiler);
    for (int batch = 0; batch < 6; ++batch) {
      { MAREY_RANGE("forward", marey::arg<"batch">(batch)); }
      profiler->step();
    }
  }
  if (auto error = profiler->wait()) {
    std::fprintf(stderr, "%s\n", error.message.c_str());
    return 1;
  }
  for (const marey::Window& window : profiler->windows()) {
    if (!window.is_skeleton) std::printf("%s\n", window.path.c_str());
  }
  return 0;
}
