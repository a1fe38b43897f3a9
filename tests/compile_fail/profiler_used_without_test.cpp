// What may be an error is no profiler: it must be looked into first.
// error: step
#include "marey/marey.hpp"

void train() {
  auto profiler = marey::Profiler::create({.role = "actor"});
#ifdef MISUSE
  profiler.step();
#else
  if (profiler) profiler->step();
#endif
}
