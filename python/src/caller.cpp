#include "caller.h"

#if PY_VERSION_HEX < 0x030B0000
#include <frameobject.h>
#elif PY_VERSION_HEX < 0x030C0000
#define Py_BUILD_CORE  // 3.11 has no public way to a frame's code that does not allocate a frame object
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wold-style-cast"
#include <internal/pycore_frame.h>
#pragma GCC diagnostic pop
#undef Py_BUILD_CORE
#endif

namespace {

constexpr int kCoroutineFlags = CO_COROUTINE | CO_ITERABLE_COROUTINE | CO_ASYNC_GENERATOR;
constexpr int kSuspendableFlags = kCoroutineFlags | CO_GENERATOR;
constexpr int kMaxFramesUp = 16;  // context managers within context managers; more than that is no program

PyObject* g_enter = nullptr;          // "__enter__", interned like every name in a code object
PyObject* g_enter_context = nullptr;  // contextlib.ExitStack's

bool enters_for_another(const PyCodeObject* code) { return code->co_name == g_enter || code->co_name == g_enter_context; }

/// Borrowed: the frame keeps its code alive while it runs. Null when no Python frame runs.
const PyCodeObject* running_code(const void** frame) noexcept {
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
  _PyInterpreterFrame* running = PyThreadState_Get()->current_frame;
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

/// Goes up from a frame that enters on behalf of another until one that does not: may that one be suspended?
bool user_may_cross() noexcept {
  PyFrameObject* frame = PyEval_GetFrame();
  if (frame == nullptr) return false;
  Py_INCREF(frame);
  bool crosses = false;
  bool entered_by_generator = false;
  for (int i = 0; frame != nullptr && i < kMaxFramesUp; ++i) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const int flags = code->co_flags;
    const bool for_another = enters_for_another(code);
    Py_DECREF(code);
    if ((flags & kCoroutineFlags) != 0) {
      crosses = true;
      break;
    }
    if (entered_by_generator && !for_another) {
      crosses = true;  // a generator that is iterated, not one that is a context manager's body
      break;
    }
    entered_by_generator = (flags & CO_GENERATOR) != 0;
    if (!entered_by_generator && !for_another) break;
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  // The outermost frame is a generator: nobody entered it as a context manager.
  if (frame == nullptr && entered_by_generator) crosses = true;
  Py_XDECREF(frame);
  return crosses;
}

}  // namespace

bool prepare_caller() {
  g_enter = PyUnicode_InternFromString("__enter__");
  g_enter_context = PyUnicode_InternFromString("enter_context");
  return g_enter != nullptr && g_enter_context != nullptr;
}

Caller current_caller() noexcept {
  const void* frame = nullptr;
  const PyCodeObject* code = running_code(&frame);
  if (code == nullptr) return {};
  const int flags = code->co_flags;
  if ((flags & kSuspendableFlags) == 0) return {nullptr, enters_for_another(code) && user_may_cross()};
  return {frame, (flags & kCoroutineFlags) != 0 || user_may_cross()};
}
