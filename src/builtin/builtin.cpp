// The one place that names the sources that are part of libmarey. Sources with dependencies of their own (PyTorch) are
// libraries that register themselves when they are loaded.

#include "marey/marey.h"
#include "src/sources/host/host.h"

namespace {

const bool kRegistered = [] {
  (void)marey_register_source(marey::sources::host::source());
  return true;
}();

}  // namespace
