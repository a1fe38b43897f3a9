#pragma once

// The inline hot path: one thread appends slots to its own chunk. A chunk is kChunkBytes long and aligned to its size,
// so one thread-local cursor is all the state there is: the chunk's header is found by masking, and a cursor whose low
// bits are zero (null included) means "no room", which is the only slow path.

#include <atomic>
#include <cstdint>

#include "marey/detail/clock.h"
#include "marey/detail/slot.h"

#if defined(__GNUC__)
#define MAREY_EXPORT __attribute__((visibility("default")))
#else
#define MAREY_EXPORT
#endif

namespace marey::detail {

enum GateBits : std::uint32_t {
  kGateUser = 1U << 0,       ///< a window that wants the user's ranges is open
  kGateSources = 1U << 1,    ///< sources are armed; an armed observer does nothing while it is clear (a fork's child)
  kGateSlowClock = 1U << 31  ///< the cycle counter is not invariant here
};

/// Which detail is being recorded. Read relaxed on every range: a stale value only moves the moment at which a thread
/// notices the shutter, and the window's own stamps decide what belongs to it.
extern MAREY_EXPORT std::atomic<std::uint32_t> g_gate;

/// First 64 bytes of a chunk. Slots follow.
struct alignas(64) ChunkHeader {
  std::atomic<Slot*> committed;  ///< written by the owner (release), read by the drain (acquire): slots below are whole
  std::atomic<ChunkHeader*> next;  ///< written by the owner when it moves on (release)
};

/// Where this thread writes next; null until its first event and after each full chunk. initial-exec: one instruction
/// to reach from any library, paid for with 8 bytes of the static TLS reserve.
extern MAREY_EXPORT thread_local constinit Slot* t_cursor __attribute__((tls_model("initial-exec")));

/// Makes room for `count` contiguous slots, registering the thread or taking a new chunk as needed. Null: the record is
/// dropped and counted. Never blocks on I/O and takes no lock once the thread is registered.
MAREY_EXPORT Slot* reserve_slow(std::uint32_t count) noexcept;

inline ChunkHeader* chunk_of(Slot* slot) noexcept {
  return reinterpret_cast<ChunkHeader*>(reinterpret_cast<std::uintptr_t>(slot) &
                                        ~static_cast<std::uintptr_t>(kChunkBytes - 1));
}

/// Room for `count` contiguous slots of this thread, or null (dropped and counted).
inline Slot* reserve(std::uint32_t count) noexcept {
  Slot* cursor = t_cursor;
  const auto offset = reinterpret_cast<std::uintptr_t>(cursor) & (kChunkBytes - 1);
  if (offset == 0 || offset + count * sizeof(Slot) > kChunkBytes) [[unlikely]]
    return reserve_slow(count);
  return cursor;
}

/// Publishes `count` slots that were reserved and filled.
inline void commit(Slot* first, std::uint32_t count) noexcept {
  t_cursor = first + count;
  // Release: the drain's acquire load of `committed` must see the slots' bytes.
  chunk_of(first)->committed.store(first + count, std::memory_order_release);
}

inline std::uint64_t ticks(std::uint32_t gate) noexcept {
  return (gate & kGateSlowClock) == 0 ? counter_ticks() : slow_ticks();
}

/// Appends one slot without payload; false when it was dropped.
inline bool append(std::uint64_t now, SlotKind kind, std::uint32_t name, EventClass event_class) noexcept {
  Slot* slot = reserve(1);
  if (slot == nullptr) [[unlikely]]
    return false;
  *slot = Slot{now, name, kind, event_class, 0, 0};
  commit(slot, 1);
  return true;
}

/// The same, stamped last: making room is not part of what the caller times. For begins.
inline bool append_late(std::uint32_t gate, SlotKind kind, std::uint32_t name, EventClass event_class) noexcept {
  Slot* slot = reserve(1);
  if (slot == nullptr) [[unlikely]]
    return false;
  *slot = Slot{ticks(gate), name, kind, event_class, 0, 0};
  commit(slot, 1);
  return true;
}

}  // namespace marey::detail
