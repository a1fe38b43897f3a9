// The C functions for the user's own ranges and marks: the same slots as the inline C++ path, with arguments.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "marey/detail/lane.h"
#include "marey/marey.h"
#include "src/event/categories.h"
#include "src/event/string_table.h"

namespace {

using marey::detail::ArgSlot;
using marey::detail::ArgType;
using marey::detail::EventClass;
using marey::detail::Slot;
using marey::detail::SlotKind;

constexpr std::size_t kMaxStringBytes = 1024;
constexpr std::uint32_t kMaxPayload = marey::detail::kMaxExtraSlots - 1;

std::atomic<std::uint64_t> g_next_async_id{1};

std::uint32_t slots_of(const marey_arg& arg) {
  if (arg.type != MAREY_ARG_STRING) return 1;
  const std::size_t size = arg.value.s == nullptr ? 0 : std::min(arg.string_size, kMaxStringBytes);
  return 1 + static_cast<std::uint32_t>((size + sizeof(Slot) - 1) / sizeof(Slot));
}

/// Cuts at a character's boundary, so that what is kept stays valid UTF-8.
std::size_t cut_size(const char* text, std::size_t size, bool* cut) {
  if (size <= kMaxStringBytes) return size;
  *cut = true;
  size = kMaxStringBytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
  return size;
}

void write_arg(const marey_arg& arg, Slot** at, bool* cut) {
  ArgSlot slot{};
  slot.key = arg.key;
  Slot* payload = *at + 1;
  switch (arg.type) {
    case MAREY_ARG_INT: slot.value = static_cast<std::uint64_t>(arg.value.i); break;
    case MAREY_ARG_DOUBLE:
      slot.type = ArgType::kDouble;
      slot.value = std::bit_cast<std::uint64_t>(arg.value.d);
      break;
    case MAREY_ARG_BOOL:
      slot.type = ArgType::kBool;
      slot.value = arg.value.i != 0 ? 1 : 0;
      break;
    case MAREY_ARG_STRING: {
      slot.type = ArgType::kString;
      if (arg.value.s == nullptr) break;
      const std::size_t size = cut_size(arg.value.s, arg.string_size, cut);
      slot.size = static_cast<std::uint16_t>(size);
      std::memcpy(payload, arg.value.s, size);
      payload += (size + sizeof(Slot) - 1) / sizeof(Slot);
      break;
    }
  }
  std::memcpy(*at, &slot, sizeof slot);
  *at = payload;
}

/// Appends a begin or mark with arguments; those that do not fit are cut and the record says so.
bool record(SlotKind kind, std::uint32_t name, std::uint64_t async_id, const marey_arg* args, std::size_t count) {
  const std::uint32_t lead = async_id != 0 ? 1 : 0;
  std::uint32_t payload = lead;
  std::size_t kept = 0;
  while (kept < count && payload + slots_of(args[kept]) <= kMaxPayload) payload += slots_of(args[kept++]);
  Slot* slot = marey::detail::reserve(1 + payload);
  if (slot == nullptr) return false;
  bool cut = kept < count;
  Slot* at = slot + 1;
  if (lead != 0) {
    const ArgSlot id{0, ArgType::kId, 0, 0, async_id};
    std::memcpy(at, &id, sizeof id);
    ++at;
  }
  for (std::size_t i = 0; i < kept; ++i) write_arg(args[i], &at, &cut);
  const std::uint8_t flags = cut ? std::uint8_t{marey::detail::kFlagTruncated} : std::uint8_t{0};
  // Stamped last: the copying above is not part of the range.
  const std::uint32_t gate = marey::detail::g_gate.load(std::memory_order_relaxed);
  *slot = Slot{marey::detail::ticks(gate), name, kind, EventClass::kUser, static_cast<std::uint8_t>(at - slot - 1), flags};
  marey::detail::commit(slot, static_cast<std::uint32_t>(at - slot));
  return true;
}

std::uint32_t gate() { return marey::detail::g_gate.load(std::memory_order_relaxed); }
bool recording() { return (gate() & marey::detail::kGateUser) != 0; }

/// Apart, so that a closed shutter costs no stack frame.
[[gnu::noinline]] std::uint32_t begin_open(std::uint32_t bits, std::uint32_t name, const marey_arg* args,
                                           std::size_t count) {
  const bool recorded = count == 0 ? marey::detail::append_late(bits, SlotKind::kBegin, name, EventClass::kUser)
                                   : record(SlotKind::kBegin, name, 0, args, count);
  return recorded ? name : 0;
}

}  // namespace

extern "C" {

uint32_t marey_intern(const char* name, size_t name_size, const char* category) {
  const std::string_view text = name == nullptr ? std::string_view() : std::string_view(name, name_size);
  return marey::event::names().intern(text, category == nullptr ? marey::event::kUserCategory : category);
}

int marey_enabled(void) { return recording() ? 1 : 0; }

uint32_t marey_range_begin(uint32_t name, const marey_arg* args, size_t args_count) {
  const std::uint32_t now = gate();
  if ((now & marey::detail::kGateUser) == 0) [[likely]] return 0;
  return begin_open(now, name, args, args_count);
}

void marey_range_end(uint32_t token) {
  if (token == 0) return;
  (void)marey::detail::append(marey::detail::ticks(gate()), SlotKind::kEnd, token, EventClass::kUser);
}

void marey_mark(uint32_t name, const marey_arg* args, size_t args_count) {
  if (recording()) (void)record(SlotKind::kMark, name, 0, args, args_count);
}

uint64_t marey_async_begin(uint32_t name, const marey_arg* args, size_t args_count) {
  if (!recording()) return 0;
  const std::uint64_t id = g_next_async_id.fetch_add(1, std::memory_order_relaxed);  // only has to be unique
  return record(SlotKind::kAsyncBegin, name, id, args, args_count) ? id : 0;
}

void marey_async_end(uint64_t id, uint32_t name) {
  if (id == 0) return;
  const std::uint64_t now = marey::detail::ticks(gate());
  Slot* slot = marey::detail::reserve(2);
  if (slot == nullptr) return;
  slot[0] = Slot{now, name, SlotKind::kAsyncEnd, EventClass::kUser, 1, 0};
  const ArgSlot payload{0, ArgType::kId, 0, 0, id};
  std::memcpy(slot + 1, &payload, sizeof payload);
  marey::detail::commit(slot, 2);
}

}  // extern "C"
