#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace marey::event {

/// One interned (name, category) pair. Lives as long as the process.
struct NameEntry {
  std::string name;
  std::string category;
};

/// `text` as valid UTF-8 of at most `max_bytes`: each byte that is not part of a valid sequence, and NUL, becomes
/// U+FFFD.
std::string clean_utf8(std::string_view text, std::size_t max_bytes);

/// Process-wide table of names. intern() may be called from any thread (a mutex; callers keep the id); entry() is
/// lock-free and is meant for the drain. The table is bounded: past `kMaxBytes` every new name becomes kOverflowName
/// and is counted.
class StringTable {
 public:
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  static constexpr std::string_view kOverflowName = "(name table full)";

  StringTable();
  ~StringTable();
  StringTable(const StringTable&) = delete;
  StringTable& operator=(const StringTable&) = delete;

  /// Id (>= 1) of the pair. Invalid UTF-8 and NUL are replaced by U+FFFD, names are cut at 4096 bytes.
  std::uint32_t intern(std::string_view name, std::string_view category);
  /// Entry of an id that intern() returned; an unknown id gives an entry named "?".
  [[nodiscard]] const NameEntry& entry(std::uint32_t id) const;
  [[nodiscard]] std::uint32_t size() const { return size_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t overflowed() const { return overflowed_.load(std::memory_order_relaxed); }

 private:
  struct Index;
  static constexpr std::uint32_t kPageEntries = 4096;
  static constexpr std::uint32_t kMaxPages = 1024;

  mutable std::mutex mutex_;
  std::unique_ptr<Index> index_;
  /// Pages are published with release and never move, so entry() needs no lock.
  std::atomic<NameEntry*> pages_[kMaxPages] = {};
  std::atomic<std::uint32_t> size_{0};
  std::atomic<std::uint64_t> overflowed_{0};
  std::size_t bytes_ = 0;
};

/// The table that libmarey's lanes refer to.
StringTable& names();

}  // namespace marey::event
