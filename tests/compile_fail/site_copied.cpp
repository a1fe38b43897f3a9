// A site is one place in the program.
// error: deleted
#include "marey/marey.hpp"

constinit marey::Site site{"forward"};
#ifdef MISUSE
marey::Site other = site;
#endif
