#pragma once

/// How a call of Marey's says that it failed. No function of the C++ API throws.

#include <cstdlib>
#include <string>
#include <utility>
#include <variant>

#include "marey/marey.h"

namespace marey {

enum class ErrorCode : int {
  kOk = MAREY_OK,
  kInvalidArgument = MAREY_INVALID_ARGUMENT,  ///< a value that can never work
  kNotFound = MAREY_NOT_FOUND,                ///< there is none, and none can come
  kIo = MAREY_IO,                             ///< the operating system refused a file operation
  kUnavailable = MAREY_UNAVAILABLE,           ///< not usable here, with the reason
  kDamaged = MAREY_DAMAGED,
  kExhausted = MAREY_EXHAUSTED,  ///< a limit was reached, e.g. the time of wait()
  kInternal = MAREY_INTERNAL,
};

/// Outcome of a call. True when there is an error, like std::error_code:
/// `if (auto error = profiler.wait()) log(error.message);`. It may be ignored: Marey has logged what matters by then.
struct Error {
  ErrorCode code = ErrorCode::kOk;
  std::string message;  ///< what happened, to which name or path, and what to do; empty when there is no error

  explicit operator bool() const noexcept { return code != ErrorCode::kOk; }

  /// The outcome of a function of the C ABI on this thread.
  static Error from_c(int code) {
    if (code == MAREY_OK) return {};
    return {static_cast<ErrorCode>(code), marey_last_error()};
  }
};

/// A value, or the error that says why there is none. Reading the value of an error ends the process: that is a fault
/// of the program's, so test first.
template <typename T>
class [[nodiscard]] Expected {
 public:
  Expected(T value) : content_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Expected(Error error) : content_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  [[nodiscard]] T& value() & noexcept { return *get(); }
  [[nodiscard]] const T& value() const& noexcept { return *const_cast<Expected*>(this)->get(); }
  [[nodiscard]] T value() && noexcept { return std::move(*get()); }
  [[nodiscard]] T& operator*() & noexcept { return value(); }
  [[nodiscard]] const T& operator*() const& noexcept { return value(); }
  [[nodiscard]] T operator*() && noexcept { return std::move(*this).value(); }
  [[nodiscard]] T* operator->() noexcept { return get(); }
  [[nodiscard]] const T* operator->() const noexcept { return &value(); }

  /// The value, or `otherwise`.
  [[nodiscard]] T value_or(T otherwise) && { return has_value() ? std::move(*this).value() : std::move(otherwise); }

  /// Without an error: code kOk and no message.
  [[nodiscard]] Error error() const { return has_value() ? Error{} : *std::get_if<1>(&content_); }

 private:
  T* get() noexcept {
    T* value = std::get_if<0>(&content_);
    if (value == nullptr) std::abort();
    return value;
  }

  std::variant<T, Error> content_;
};

}  // namespace marey
