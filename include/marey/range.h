#pragma once

/// Ranges and marks of a program's own. They are recorded while a window of any profiler of the process is open, and
/// cost about a third of a nanosecond while none is. Every function here may be called from any thread, in any state;
/// none throws, blocks or takes a lock, unless its comment says so.

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "marey/detail/lane.h"
#include "marey/marey.h"

namespace marey {

/// True when a range that begins now would be recorded. For work that only serves an argument.
inline bool enabled() noexcept {
  return (detail::g_gate.load(std::memory_order_relaxed) & detail::kGateUser) != 0;
}

/// The name and category of a place in the program. Meant to be static; its id is looked up once, at the first recorded
/// use. The strings must live as long as the site. category null: "user". Categories group names in the viewer; those
/// that belong to Marey's own sources ("operator", "stage", ...) are stored as "user.<category>".
class Site {
 public:
  constexpr explicit Site(const char* name, const char* category = nullptr) noexcept
      : name_(name), category_(category) {}
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  /// The first call takes the name table's lock.
  [[nodiscard]] std::uint32_t id() noexcept {
    // Acquire: pairs with the release below, so that the drain, which sees this thread's slots, also sees the name's
    // entry.
    const std::uint32_t id = id_.load(std::memory_order_acquire);
    return id != 0 ? id : intern();
  }
  [[nodiscard]] const char* name() const noexcept { return name_; }

 private:
  [[gnu::noinline, gnu::cold]] std::uint32_t intern() noexcept {
    const std::uint32_t id = marey_intern(name_, std::strlen(name_), category_);  // the same id on every thread
    id_.store(id, std::memory_order_release);
    return id;
  }

  const char* name_;
  const char* category_;
  std::atomic<std::uint32_t> id_{0};
};

/// A name that is made at run time and used often, e.g. one for each layer. Looked up once, when it is made (under the
/// name table's lock); a copy is a number. The table keeps names for ever, so don't put counters into them: use an
/// argument.
class Name {
 public:
  explicit Name(std::string_view name, const char* category = nullptr) noexcept
      : id_(marey_intern(name.data(), name.size(), category)) {}
  [[nodiscard]] std::uint32_t id() const noexcept { return id_; }

 private:
  std::uint32_t id_;
};

/// One argument of a range or mark, as made by arg(). Borrows its strings: it lives for the call that it is passed to.
class Arg {
 public:
  template <typename T>
  Arg(std::string_view key, Site* site, const T& value) noexcept : key_(key), site_(site) {
    if constexpr (std::is_same_v<T, bool>) {
      type_ = MAREY_ARG_BOOL;
      int_ = value ? 1 : 0;
    } else if constexpr (std::is_enum_v<T>) {
      int_ = static_cast<std::int64_t>(value);
    } else if constexpr (std::integral<T>) {
      int_ = static_cast<std::int64_t>(value);
    } else if constexpr (std::floating_point<T>) {
      type_ = MAREY_ARG_DOUBLE;
      double_ = static_cast<double>(value);
    } else {
      static_assert(std::convertible_to<const T&, std::string_view>,
                    "an argument of a range is an integer, a floating-point number, a bool, an enumerator or a string");
      type_ = MAREY_ARG_STRING;
      string_ = value;
    }
  }

  [[nodiscard]] marey_arg to_c() const noexcept {
    marey_arg out{};
    out.key = site_ != nullptr ? site_->id() : marey_intern(key_.data(), key_.size(), nullptr);
    out.type = type_;
    if (type_ == MAREY_ARG_STRING) {
      out.value.s = string_.data();
      out.string_size = string_.size();
    } else if (type_ == MAREY_ARG_DOUBLE) {
      out.value.d = double_;
    } else {
      out.value.i = int_;
    }
    return out;
  }

 private:
  std::string_view key_;
  Site* site_;
  marey_arg_type type_ = MAREY_ARG_INT;
  std::int64_t int_ = 0;
  double double_ = 0;
  std::string_view string_;
};

namespace detail {

/// A string literal as a template argument.
template <std::size_t kSize>
struct Literal {
  constexpr Literal(const char (&from)[kSize]) noexcept {  // NOLINT(google-explicit-constructor)
    for (std::size_t i = 0; i < kSize; ++i) text[i] = from[i];
  }
  char text[kSize]{};
};

template <Literal kKey>
inline constinit Site key_site{kKey.text};

}  // namespace detail

/// `arg("tokens", n)`: the key is looked up, under the name table's lock, each time that the range is recorded.
template <typename T>
[[nodiscard]] Arg arg(std::string_view key, const T& value) noexcept {
  if constexpr (std::is_array_v<T>) {
    return Arg(key, nullptr, std::string_view(value));
  } else {
    return Arg(key, nullptr, value);
  }
}

/// `arg<"tokens">(n)`: the key is looked up once in the program. For hot places.
template <detail::Literal kKey, typename T>
[[nodiscard]] Arg arg(const T& value) noexcept {
  if constexpr (std::is_array_v<T>) {
    return Arg({}, &detail::key_site<kKey>, std::string_view(value));
  } else {
    return Arg({}, &detail::key_site<kKey>, value);
  }
}

namespace detail {

/// A range that is being recorded: the id of its name in the low half, the gate as it was at the begin in the high
/// half, so that both stamps come from one clock. 0: not recorded. One number, so that it lives in a register.
using RecordedRange = std::uint64_t;

inline RecordedRange recorded_range(std::uint32_t name, std::uint32_t gate) noexcept {
  return name == 0 ? 0 : std::uint64_t{gate} << 32U | name;
}

// Out of line: beside two counter reads a call costs nothing that can be measured, and a range's place in the program
// stays small enough to be forgotten while the shutter is closed.

[[gnu::noinline]] inline RecordedRange begin_range(std::uint32_t name, std::uint32_t gate) noexcept {
  return append_late(gate, SlotKind::kBegin, name, EventClass::kUser) ? recorded_range(name, gate) : 0;
}
[[gnu::noinline]] inline RecordedRange begin_range(Site& site, std::uint32_t gate) noexcept {
  const std::uint32_t name = site.id();
  return append_late(gate, SlotKind::kBegin, name, EventClass::kUser) ? recorded_range(name, gate) : 0;
}
[[gnu::noinline]] inline void end_range(RecordedRange range) noexcept {
  const std::uint64_t now = ticks(static_cast<std::uint32_t>(range >> 32U));
  (void)append(now, SlotKind::kEnd, static_cast<std::uint32_t>(range), EventClass::kUser);
}

template <typename... Args>
[[gnu::always_inline]] inline RecordedRange begin_range_with(std::uint32_t name, std::uint32_t gate,
                                                             const Args&... args) noexcept {
  static_assert((std::same_as<Args, Arg> && ...),
                "after the name of a range come its arguments: marey::arg(key, value)");
  const marey_arg converted[] = {args.to_c()...};
  return recorded_range(marey_range_begin(name, converted, sizeof...(args)), gate);
}

}  // namespace detail

/// A range from its construction to its destruction, on this thread, nested in the ranges around it. Begin and end are
/// stamped by the cycle counter: begin as late and end as early as possible. A range whose begin was recorded always
/// records its end, also when the window has closed meanwhile; one whose begin was not records none. Records that find
/// no room are dropped and counted in the trace.
class Range {
 public:
  /// The fast way, for static sites: see MAREY_RANGE.
  [[nodiscard]] explicit Range(Site& site) noexcept {
    const std::uint32_t gate = load_gate();
    if ((gate & detail::kGateUser) != 0) [[unlikely]]
      range_ = detail::begin_range(site, gate);
  }
  template <typename... Rest>
  [[nodiscard]] Range(Site& site, const Arg& first, const Rest&... rest) noexcept {
    const std::uint32_t gate = load_gate();
    if ((gate & detail::kGateUser) != 0) [[unlikely]]
      range_ = detail::begin_range_with(site.id(), gate, first, rest...);
  }

  /// As fast, for a name made before.
  [[nodiscard]] explicit Range(Name name) noexcept {
    const std::uint32_t gate = load_gate();
    if ((gate & detail::kGateUser) != 0) [[unlikely]]
      range_ = detail::begin_range(name.id(), gate);
  }
  template <typename... Rest>
  [[nodiscard]] Range(Name name, const Arg& first, const Rest&... rest) noexcept {
    const std::uint32_t gate = load_gate();
    if ((gate & detail::kGateUser) != 0) [[unlikely]]
      range_ = detail::begin_range_with(name.id(), gate, first, rest...);
  }

  /// The name is looked up, under the name table's lock, each time that the range is recorded.
  template <typename... Args>
  [[nodiscard]] explicit Range(std::string_view name, const Args&... args) noexcept {
    const std::uint32_t gate = load_gate();
    if ((gate & detail::kGateUser) == 0) [[likely]]
      return;
    const std::uint32_t id = marey_intern(name.data(), name.size(), nullptr);
    if constexpr (sizeof...(args) == 0) {
      range_ = detail::begin_range(id, gate);
    } else {
      range_ = detail::begin_range_with(id, gate, args...);
    }
  }

  ~Range() { end(); }

  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

  /// True when this range is being recorded.
  [[nodiscard]] bool recorded() const noexcept { return range_ != 0; }

  /// Ends it before its scope does.
  void end() noexcept {
    if (range_ != 0) [[unlikely]]
      detail::end_range(std::exchange(range_, 0));
  }

 private:
  static std::uint32_t load_gate() noexcept { return detail::g_gate.load(std::memory_order_relaxed); }

  detail::RecordedRange range_ = 0;
};

/// Records an instant.
template <typename... Args>
void mark(Site& site, const Args&... args) noexcept {
  const std::uint32_t gate = detail::g_gate.load(std::memory_order_relaxed);
  if ((gate & detail::kGateUser) == 0) [[likely]]
    return;
  if constexpr (sizeof...(args) == 0) {
    (void)detail::append_late(gate, detail::SlotKind::kMark, site.id(), detail::EventClass::kUser);
  } else {
    const marey_arg converted[] = {args.to_c()...};
    marey_mark(site.id(), converted, sizeof...(args));
  }
}
template <typename... Args>
void mark(Name name, const Args&... args) noexcept {
  if (!enabled()) [[likely]]
    return;
  if constexpr (sizeof...(args) == 0) {
    marey_mark(name.id(), nullptr, 0);
  } else {
    const marey_arg converted[] = {args.to_c()...};
    marey_mark(name.id(), converted, sizeof...(args));
  }
}
/// The name is looked up, under the name table's lock, each time that the mark is recorded.
template <typename... Args>
void mark(std::string_view name, const Args&... args) noexcept {
  if (enabled()) [[unlikely]]
    mark(Name(name), args...);
}

/// A range that may cross others, and may end on another thread: a request, a coroutine, a callback. Moves; ends once.
class AsyncRange {
 public:
  AsyncRange() noexcept = default;
  template <typename... Args>
  explicit AsyncRange(Site& site, const Args&... args) noexcept {
    if (enabled()) [[unlikely]]
      begin(site.id(), args...);
  }
  template <typename... Args>
  explicit AsyncRange(Name name, const Args&... args) noexcept {
    if (enabled()) [[unlikely]]
      begin(name.id(), args...);
  }
  /// The name is looked up, under the name table's lock, each time that the range is recorded.
  template <typename... Args>
  explicit AsyncRange(std::string_view name, const Args&... args) noexcept {
    if (enabled()) [[unlikely]]
      begin(marey_intern(name.data(), name.size(), nullptr), args...);
  }
  ~AsyncRange() { end(); }

  AsyncRange(AsyncRange&& other) noexcept : id_(std::exchange(other.id_, 0)), name_(other.name_) {}
  AsyncRange& operator=(AsyncRange&& other) noexcept {
    if (this != &other) {
      end();
      id_ = std::exchange(other.id_, 0);
      name_ = other.name_;
    }
    return *this;
  }

  [[nodiscard]] bool recorded() const noexcept { return id_ != 0; }

  /// On any thread, but not on two at once.
  void end() noexcept {
    if (id_ != 0) marey_async_end(std::exchange(id_, 0), name_);
  }

 private:
  template <typename... Args>
  void begin(std::uint32_t name, const Args&... args) noexcept {
    name_ = name;
    if constexpr (sizeof...(args) == 0) {
      id_ = marey_async_begin(name, nullptr, 0);
    } else {
      static_assert((std::same_as<Args, Arg> && ...),
                    "after the name of a range come its arguments: marey::arg(key, value)");
      const marey_arg converted[] = {args.to_c()...};
      id_ = marey_async_begin(name, converted, sizeof...(args));
    }
  }

  std::uint64_t id_ = 0;  ///< 0: not recorded, or ended
  std::uint32_t name_ = 0;
};

}  // namespace marey

#define MAREY_DETAIL_JOIN_(left, right) left##right
#define MAREY_DETAIL_JOIN(left, right) MAREY_DETAIL_JOIN_(left, right)

/// A range to the end of the enclosing scope, one a line: `MAREY_RANGE("forward");`. The name must live for ever, so in
/// practice it is a literal. Arguments may follow: `MAREY_RANGE("decode", marey::arg<"tokens">(n));`; their values are
/// computed whether or not the range is recorded, so keep them cheap.
#define MAREY_RANGE(name, ...)                                                   \
  static constinit ::marey::Site MAREY_DETAIL_JOIN(marey_site_, __LINE__){name}; \
  const ::marey::Range MAREY_DETAIL_JOIN(                                        \
      marey_range_, __LINE__)(MAREY_DETAIL_JOIN(marey_site_, __LINE__) __VA_OPT__(, ) __VA_ARGS__)
