#pragma once

#include "marey/marey.h"

namespace marey::sources::host {

/// The user's own ranges and marks (marey::Range, marey.range, the C functions). They are written by the program's
/// threads themselves and follow the gate, so arming has nothing to do.
const marey_source* source();

}  // namespace marey::sources::host
