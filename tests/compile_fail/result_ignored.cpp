// A value that may not be there is looked into.
// error: nodiscard|ignoring return
#include "src/base/status.h"

marey::Result<int> count();

int seal() {
#ifdef MISUSE
  count();
  return 0;
#else
  const marey::Result<int> result = count();
  return result.is_ok() ? result.value() : 0;
#endif
}
