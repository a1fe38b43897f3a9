// The sample of the README. Records mini-batches 2 and 3 of ten.

#include <cmath>
#include <cstdio>

#include "marey/marey.hpp"

double train(std::int64_t batch) {
  MAREY_RANGE("forward");
  double loss = 0;
  for (int i = 0; i < 100'000; ++i) loss += std::sin(static_cast<double>(batch + i));
  return loss;
}

int main() {
  auto profiler =
      marey::Profiler::create({.schedule = {.wait = 1, .warmup = 1, .active = 2, .repeat = 1}, .role = "actor"});
  if (!profiler) return std::fprintf(stderr, "%s\n", profiler.error().message.c_str()), 1;
  marey::Lease lease(*profiler);
  double loss = 0;
  for (const std::int64_t batch : marey::mini_batches(*profiler, 10)) loss += train(batch);
  return loss > 1e9 ? 1 : 0;
}
