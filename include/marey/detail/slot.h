#pragma once

// The fixed-size records of a lane. 16 bytes a slot; a begin or mark may be followed by `extra` payload slots.
//
//   byte   0        8        12     13            14      15
//         | ticks  | name   | kind | event_class | extra | flags |
//
// `ticks` is the raw cycle counter (see clock.h). `name` is an id of marey_intern(). An end repeats the name of its
// begin, so that a lost begin or end is repaired by name and never closes a stranger's range.

#include <cstdint>

namespace marey::detail {

enum class SlotKind : std::uint8_t {
  kPad = 0,         ///< skip to the end of the chunk
  kBegin = 1,       ///< a range begins on this thread; nests
  kEnd = 2,         ///< the innermost open range of this name ends
  kMark = 3,        ///< an instant
  kAsyncBegin = 4,  ///< a range that need not nest; first payload slot: value = id, unique in the process
  kAsyncEnd = 5,    ///< its end, on any thread; first payload slot: value = id
};

/// What an event is, as one bit of the masks by which a window says what it wants.
enum class EventClass : std::uint8_t {
  kUser = 0,       ///< ranges and marks of the user's (host, later NVTX, ITT, mstx)
  kOperator = 1,   ///< PyTorch operators (RecordFunction FUNCTION and kin)
  kBackward = 2,   ///< autograd nodes (BACKWARD_FUNCTION)
  kUserScope = 3,  ///< PyTorch's record_function, optimizer and data-loader scopes (USER_SCOPE)
};

constexpr std::uint32_t class_bit(EventClass event_class) {
  return 1U << static_cast<unsigned>(event_class);
}

enum SlotFlags : std::uint8_t {
  kFlagSequence = 1,   ///< the first payload slot is a SequenceSlot
  kFlagTruncated = 2,  ///< arguments were cut to fit
};

struct Slot {
  std::uint64_t ticks;
  std::uint32_t name;
  SlotKind kind;
  EventClass event_class;
  std::uint8_t extra;
  std::uint8_t flags;
};
static_assert(sizeof(Slot) == 16);

enum class ArgType : std::uint8_t {
  kInt = 0,     ///< value is an int64
  kDouble = 1,  ///< value is the bits of a double
  kBool = 2,
  kString = 3,  ///< `size` bytes of UTF-8 follow in ceil(size/16) slots; value unused
  kId = 4,      ///< value is the id of an async range
};

/// One argument: `key` is an id of marey_intern(). For kString `size` bytes follow in the next slots.
struct ArgSlot {
  std::uint32_t key;
  ArgType type;
  std::uint8_t reserved;
  std::uint16_t size;
  std::uint64_t value;
};
static_assert(sizeof(ArgSlot) == 16);

/// PyTorch's link between a forward operator and its backward node: they share (forward thread, sequence number).
struct SequenceSlot {
  std::int64_t sequence_number;
  std::uint64_t forward_thread;  ///< PyTorch's logical thread id of the forward
};
static_assert(sizeof(SequenceSlot) == 16);

inline constexpr std::uint32_t kMaxExtraSlots = 255;
inline constexpr std::uint32_t kChunkBytes = 64 * 1024;

}  // namespace marey::detail
