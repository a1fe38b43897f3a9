#pragma once

/// Marey's C++ API. See docs/cpp.md.

#include "marey/expected.h"  // IWYU pragma: export
#include "marey/profiler.h"  // IWYU pragma: export
#include "marey/range.h"     // IWYU pragma: export
