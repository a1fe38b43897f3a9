#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace marey {

/// What kind of failure a `Status` reports. The values are part of the C ABI (`marey_code`), so they are never
/// renumbered.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,  ///< the caller passed a value that can never work
  kNotFound = 2,         ///< a file, symbol or name is absent
  kIo = 3,               ///< the operating system refused a file operation
  kUnavailable = 4,      ///< a source or feature is not usable here, with the reason
  kDamaged = 5,          ///< bytes that are not a trace of Marey's
  kExhausted = 6,        ///< a limit was reached
  kInternal = 7,         ///< a fault of Marey's own
};

/// Outcome of a fallible call: a code, and for failures a message that says what happened, to which name or path, and
/// what to do. Cheap to move; an OK status allocates nothing.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  static Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
  static Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
  static Status io(std::string message) { return {Code::kIo, std::move(message)}; }
  static Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
  static Status damaged(std::string message) { return {Code::kDamaged, std::move(message)}; }
  static Status exhausted(std::string message) { return {Code::kExhausted, std::move(message)}; }
  static Status internal(std::string message) { return {Code::kInternal, std::move(message)}; }

  [[nodiscard]] bool is_ok() const { return code_ == Code::kOk; }
  [[nodiscard]] Code code() const { return code_; }
  [[nodiscard]] const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

/// A value, or the status that says why there is none. `value()` may be called only when `is_ok()`.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT(google-explicit-constructor): return sites read better
  Result(Status status) : status_(std::move(status)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool is_ok() const { return value_.has_value(); }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  /// By value, so that `for (auto& x : f().value())` keeps it alive.
  [[nodiscard]] T value() && { return std::move(*value_); }

 private:
  Status status_;
  std::optional<T> value_;
};

/// Returns the status of an expression from the enclosing function unless it is OK.
#define MAREY_RETURN_IF_ERROR(expression)             \
  do {                                                \
    ::marey::Status marey_status_ = (expression);     \
    if (!marey_status_.is_ok()) return marey_status_; \
  } while (false)

}  // namespace marey
