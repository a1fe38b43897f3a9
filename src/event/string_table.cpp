#include "src/event/string_table.h"

#include <unordered_map>

namespace marey::event {
namespace {

constexpr std::size_t kMaxNameBytes = 4096;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Length of the valid UTF-8 sequence at `text[i]`, 0 when it is not one (RFC 3629: no surrogates, no overlong forms).
std::size_t utf8_length(std::string_view text, std::size_t i) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(at < text.size() ? text[at] : 0); };
  const auto continues = [&](std::size_t at) { return (byte(at) & 0xC0U) == 0x80U; };
  const unsigned char first = byte(i);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(i + 1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    if (!continues(i + 1) || !continues(i + 2)) return 0;
    if (first == 0xE0 && byte(i + 1) < 0xA0) return 0;
    if (first == 0xED && byte(i + 1) >= 0xA0) return 0;
    return 3;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    if (!continues(i + 1) || !continues(i + 2) || !continues(i + 3)) return 0;
    if (first == 0xF0 && byte(i + 1) < 0x90) return 0;
    if (first == 0xF4 && byte(i + 1) >= 0x90) return 0;
    return 4;
  }
  return 0;
}

}  // namespace

std::string clean_utf8(std::string_view text, std::size_t max_bytes) {
  std::string clean;
  clean.reserve(text.size() < max_bytes ? text.size() : max_bytes);
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = text[i] == '\0' ? 0 : utf8_length(text, i);
    const std::string_view piece = length == 0 ? kReplacement : text.substr(i, length);
    if (clean.size() + piece.size() > max_bytes) break;
    clean.append(piece);
    i += length == 0 ? 1 : length;
  }
  return clean;
}

struct StringTable::Index {
  std::unordered_map<std::string, std::uint32_t> ids;
};

StringTable::StringTable() : index_(std::make_unique<Index>()) {
  intern(kOverflowName, "user");  // id 1, so that it exists when the table is full
}

StringTable::~StringTable() {
  for (auto& page : pages_) delete[] page.load(std::memory_order_relaxed);
}

std::uint32_t StringTable::intern(std::string_view name, std::string_view category) {
  std::string clean_name = clean_utf8(name, kMaxNameBytes);
  if (clean_name.empty()) clean_name = "(unnamed)";
  std::string clean_category = clean_utf8(category, kMaxNameBytes);
  std::string key = clean_category;
  key.push_back('\0');
  key.append(clean_name);

  const std::lock_guard lock(mutex_);
  if (const auto found = index_->ids.find(key); found != index_->ids.end()) return found->second;
  const std::uint32_t count = size_.load(std::memory_order_relaxed);
  const std::size_t cost = 2 * key.size() + sizeof(NameEntry);
  if (count + 1 >= kPageEntries * kMaxPages || bytes_ + cost > kMaxBytes) {
    overflowed_.fetch_add(1, std::memory_order_relaxed);  // a statistic: no order needed
    return 1;
  }
  const std::uint32_t id = count + 1;
  auto& page = pages_[id / kPageEntries];
  NameEntry* entries = page.load(std::memory_order_relaxed);  // only written under mutex_
  if (entries == nullptr) {
    entries = new NameEntry[kPageEntries];
    page.store(entries, std::memory_order_release);
  }
  entries[id % kPageEntries] = NameEntry{std::move(clean_name), std::move(clean_category)};
  index_->ids.emplace(std::move(key), id);
  bytes_ += cost;
  // Release: a drain that sees the new size sees the entry. (Ids reach it through a lane's own release as well.)
  size_.store(id, std::memory_order_release);
  return id;
}

const NameEntry& StringTable::entry(std::uint32_t id) const {
  static const NameEntry unknown{"?", "user"};
  if (id == 0 || id > size_.load(std::memory_order_acquire)) return unknown;
  return pages_[id / kPageEntries].load(std::memory_order_acquire)[id % kPageEntries];
}

StringTable& names() {
  // Never destroyed: lanes are drained from atexit handlers.
  static auto* instance = new StringTable;
  return *instance;
}

}  // namespace marey::event
