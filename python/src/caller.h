#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#elif PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE  // 3.11 has no public way to a frame's code that does not allocate a frame object
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#include <internal/pycore_frame.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE
#endif

/// The Python frame that enters or leaves a range.
struct Caller {
  /// Identity of the frame for as long as a suspended coroutine or generator lives; null when the frame is an ordinary
  /// one.
  const void* frame = nullptr;
  /// Ranges of this frame may cross those of others on the same thread: it is a coroutine or a generator, so it can be
  /// suspended inside the range.
  bool may_cross = false;
};

/// Looks at the frame that is running now. Generators that are the body of a
/// @contextmanager, and __enter__ methods written in Python, count as the frame that uses them. Sets no Python error.
[[nodiscard]] Caller current_caller() noexcept;

/// Once, before the other functions; false with a Python error set on failure.
[[nodiscard]] bool prepare_caller();

// ---- the part that every recorded range goes through ----

namespace caller {

constexpr int kCoroutineFlags = CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;
constexpr int kSuspendableFlags = kCoroutineFlags | CO_GENERATOR;

extern PyObject* g_enter;          ///< "__enter__", interned like every name in a code object
extern PyObject* g_enter_context;  ///< contextlib.ExitStack's

inline bool enters_for_another(const PyCodeObject* code) {
  return code->co_name == g_enter || code->co_name == g_enter_context;
}

/// Borrowed: the frame keeps its code alive while it runs. Null when no Python frame runs.
inline const PyCodeObject* running_code(const void** frame) noexcept {
#if PY_VERSION_HEX < 0x030B0000
  PyFrameObject* object = PyEval_GetFrame();
  if (object == nullptr) return nullptr;
  *frame = object;
  PyCodeObject* code = PyFrame_GetCode(object);
  Py_DECREF(code);
  return code;
#elif PY_VERSION_HEX < 0x030C0000
  const _PyInterpreterFrame* running = PyThreadState_Get()->cframe->current_frame;
  if (running == nullptr) return nullptr;
  *frame = running;
  return running->f_code;
#else
#if PY_VERSION_HEX < 0x030D0000
  _PyInterpreterFrame* running = PyThreadState_Get()->cframe->current_frame;
#else
  _PyInterpreterFrame* running = PyThreadState_GetUnchecked()->current_frame;
#endif
  if (running == nullptr) return nullptr;
  PyObject* code = PyUnstable_InterpreterFrame_GetCode(running);
  if (code == nullptr) return nullptr;
  Py_DECREF(code);
  if (!PyCode_Check(code)) return nullptr;
  *frame = running;
  return reinterpret_cast<const PyCodeObject*>(code);
#endif
}

}  // namespace caller

/// True when the frame that runs now is an ordinary function's, which enters for itself: nothing crosses. A few loads.
inline bool caller_is_ordinary() noexcept {
  const void* frame = nullptr;
  const PyCodeObject* code = caller::running_code(&frame);
  return code != nullptr && (code->co_flags & caller::kSuspendableFlags) == 0 && !caller::enters_for_another(code);
}
