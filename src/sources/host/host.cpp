#include "src/sources/host/host.h"

namespace marey::sources::host {

const marey_source* source() {
  static const marey_source instance{sizeof(marey_source), "host", nullptr,
                                     [](void*, uint32_t, int, char*, size_t) { return 0; }};
  return &instance;
}

}  // namespace marey::sources::host
