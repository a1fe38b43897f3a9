// Fractions of a mini-batch can't be asked for.
// error: narrowing|narrowed
#include "marey/marey.hpp"

#ifdef MISUSE
const marey::Schedule schedule{.active = 1.5};
#else
const marey::Schedule schedule{.active = 1};
#endif
