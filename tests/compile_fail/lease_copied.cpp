// A copy would stop the profiler early.
// error: deleted
#include "marey/marey.hpp"

void train(marey::Profiler& profiler) {
  const marey::Lease lease{profiler};
#ifdef MISUSE
  const marey::Lease other = lease;
#endif
}
