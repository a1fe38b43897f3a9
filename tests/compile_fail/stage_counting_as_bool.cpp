// Whether units are counted in a stage is said in words.
// error: no matching|convert
#include "marey/marey.hpp"

void update(marey::Profiler& profiler) {
#ifdef MISUSE
  const marey::Stage stage(profiler, "actor_update", true);
#else
  const marey::Stage stage(profiler, "actor_update", marey::Counting::kScheduled);
#endif
}
