// MAREY_RANGE makes a static site, which needs a name that lives for ever.
// error: constant|initializ|constinit
#include <string>

#include "marey/marey.hpp"

void layer(const std::string& name) {
#ifdef MISUSE
  MAREY_RANGE(name.c_str());
#else
  const marey::Range range(name);
#endif
}
