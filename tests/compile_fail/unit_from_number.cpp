// A unit is named, not numbered.
// error: convert|conversion|initialize|no matching
#include "marey/marey.hpp"

void end(marey::Profiler& profiler) {
#ifdef MISUSE
  profiler.tick(1);
#else
  profiler.tick(marey::Unit::kMiniBatch);
#endif
}
