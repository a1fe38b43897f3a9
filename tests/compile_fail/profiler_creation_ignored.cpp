// A profiler that nobody keeps records nothing.
// error: nodiscard|unused result|warn_unused_result
#include "marey/marey.hpp"

void start() {
#ifdef MISUSE
  marey::Profiler::create({.role = "actor"});
#else
  auto profiler = marey::Profiler::create({.role = "actor"});
  if (!profiler) return;
#endif
}
