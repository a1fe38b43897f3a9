// A failure inside the core is handled or handed on.
// error: nodiscard|ignoring return
#include "src/base/status.h"

marey::Status write();

void seal() {
#ifdef MISUSE
  write();
#else
  (void)write().is_ok();
#endif
}
