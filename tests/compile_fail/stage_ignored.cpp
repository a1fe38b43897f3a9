// A stage without a name ends on the line on which it began.
// error: nodiscard
#include "marey/marey.hpp"

void update(marey::Profiler& profiler) {
#ifdef MISUSE
  marey::Stage{profiler, "actor_update"};
#else
  const marey::Stage stage{profiler, "actor_update"};
#endif
}
