// It moves and ends once.
// error: deleted
#include <utility>

#include "marey/marey.hpp"

marey::AsyncRange hand_on(marey::AsyncRange& request) {
#ifdef MISUSE
  return request;
#else
  return std::move(request);
#endif
}
