#include "caller.h"

namespace caller {

PyObject* g_enter = nullptr;
PyObject* g_enter_context = nullptr;

}  // namespace caller

namespace {

using caller::enters_for_another;
using caller::kCoroutineFlags;
using caller::kSuspendableFlags;

constexpr int kMaxFramesUp = 16;  // context managers within context managers; more than that is no program

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
  caller::g_enter = PyUnicode_InternFromString("__enter__");
  caller::g_enter_context = PyUnicode_InternFromString("enter_context");
  return caller::g_enter != nullptr && caller::g_enter_context != nullptr;
}

Caller current_caller() noexcept {
  const void* frame = nullptr;
  const PyCodeObject* code = caller::running_code(&frame);
  if (code == nullptr) return {};
  const int flags = code->co_flags;
  if ((flags & kSuspendableFlags) == 0) return {nullptr, enters_for_another(code) && user_may_cross()};
  return {frame, (flags & kCoroutineFlags) != 0 || user_may_cross()};
}
