// A lease without a name ends on the line on which it began.
// error: nodiscard
#include "marey/marey.hpp"

void train(marey::Profiler& profiler) {
#ifdef MISUSE
  marey::Lease{profiler};
#else
  const marey::Lease lease{profiler};
#endif
}
