// Two owners of one handle would free it twice.
// error: deleted
#include <utility>

#include "marey/marey.hpp"

marey::Profiler take(marey::Profiler& profiler) {
#ifdef MISUSE
  return profiler;
#else
  return std::move(profiler);
#endif
}
