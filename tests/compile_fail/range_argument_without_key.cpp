// An argument has a key.
// error: no matching|no type|marey::arg|conversion|cannot convert
#include "marey/marey.hpp"

void decode(int tokens) {
  static constinit marey::Site site{"decode"};
#ifdef MISUSE
  marey::Range range(site, tokens);
#else
  marey::Range range(site, marey::arg("tokens", tokens));
#endif
}
