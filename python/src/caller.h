#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

/// The Python frame that enters or leaves a range.
struct Caller {
  /// Identity of the frame for as long as a suspended coroutine or generator lives; null when the frame is an ordinary one.
  const void* frame = nullptr;
  /// Ranges of this frame may cross those of others on the same thread: it is a coroutine or a generator, so it can be
  /// suspended inside the range.
  bool may_cross = false;
};

/// Looks at the frame that is running now. A few loads for ordinary functions. Generators that are the body of a
/// @contextmanager, and __enter__ methods written in Python, count as the frame that uses them. Sets no Python error.
[[nodiscard]] Caller current_caller() noexcept;

/// Once, before current_caller(); false with a Python error set on failure.
[[nodiscard]] bool prepare_caller();
