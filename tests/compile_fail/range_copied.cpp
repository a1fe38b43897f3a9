// A copy would end the same range twice.
// error: deleted
#include "marey/marey.hpp"

void forward() {
  marey::Range range("forward");
#ifdef MISUSE
  marey::Range copy = range;
#endif
}
