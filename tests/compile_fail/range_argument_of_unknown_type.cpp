// What can't be written into a trace can't be an argument.
// error: an argument of a range is an integer
#include <vector>

#include "marey/marey.hpp"

void decode(const std::vector<int>& tokens) {
  marey::Range range("decode", marey::arg("count", tokens.size()));
#ifdef MISUSE
  marey::Range other("decode", marey::arg("tokens", tokens));
#endif
}
