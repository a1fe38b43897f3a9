// A range without a name ends on the line on which it began.
// error: nodiscard
#include "marey/marey.hpp"

void forward() {
#ifdef MISUSE
  marey::Range{"forward"};
#else
  const marey::Range range{"forward"};
#endif
}
