// An observer that does nothing: what PyTorch's own machinery costs once any callback is registered. bench/torch_ops.py
// builds it against the installed PyTorch as the PyTorch source is built, and sets Marey's cost against it.

#ifndef NDEBUG
#error "build this file with -DNDEBUG: PyTorch's headers change their layout without it"
#endif

#include <ATen/record_function.h>

#include <memory>

namespace {

at::CallbackHandle g_handle = at::INVALID_CALLBACK_HANDLE;

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction&) {
  return nullptr;
}
void on_end(const at::RecordFunction&, at::ObserverContext*) {}

}  // namespace

extern "C" {

/// `operators` 0: backward nodes and user scopes only, as in an outline. `inputs`: the callback asks for them, as
/// shapes do.
void empty_callback_add(int operators, int inputs) {
  using at::RecordScope;
  auto callback = at::RecordFunctionCallback(&on_start, &on_end).needsInputs(inputs != 0);
  if (operators != 0) {
    callback.scopes({RecordScope::FUNCTION, RecordScope::TORCHSCRIPT_FUNCTION, RecordScope::CUSTOM_CLASS,
                     RecordScope::BACKWARD_FUNCTION, RecordScope::USER_SCOPE});
  } else {
    callback.scopes({RecordScope::BACKWARD_FUNCTION, RecordScope::USER_SCOPE});
  }
  g_handle = at::addGlobalCallback(std::move(callback));
}

void empty_callback_remove() {
  at::removeCallback(g_handle);
  g_handle = at::INVALID_CALLBACK_HANDLE;
}

}  // extern "C"
