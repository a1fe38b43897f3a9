#pragma once

// Field numbers of the Perfetto schema that Marey writes and reads, by message, and the few enumerators. Source:
// Perfetto's public protos (trace_packet.proto, track_event.proto, track_descriptor.proto, clock_snapshot.proto,
// interned_data.proto, trace_packet_defaults.proto, debug_annotation.proto, chrome_trace_event.proto).

#include <cstdint>

namespace marey::trace::field {

namespace trace {
constexpr std::uint32_t kPacket = 1;
}
namespace packet {
constexpr std::uint32_t kChromeEvents = 5;
constexpr std::uint32_t kClockSnapshot = 6;
constexpr std::uint32_t kTimestamp = 8;
constexpr std::uint32_t kSequenceId = 10;
constexpr std::uint32_t kTrackEvent = 11;
constexpr std::uint32_t kInternedData = 12;
constexpr std::uint32_t kSequenceFlags = 13;
constexpr std::uint32_t kCompressedPackets = 50;
constexpr std::uint32_t kTimestampClockId = 58;
constexpr std::uint32_t kDefaults = 59;
constexpr std::uint32_t kTrackDescriptor = 60;
}  // namespace packet
namespace clock_snapshot {
constexpr std::uint32_t kClocks = 1;
constexpr std::uint32_t kPrimaryTraceClock = 2;
}  // namespace clock_snapshot
namespace clock {
constexpr std::uint32_t kId = 1;
constexpr std::uint32_t kTimestamp = 2;
constexpr std::uint32_t kIsIncremental = 3;
}  // namespace clock
namespace defaults {
constexpr std::uint32_t kTrackEventDefaults = 11;
constexpr std::uint32_t kTimestampClockId = 58;
}  // namespace defaults
namespace track_event {
constexpr std::uint32_t kCategoryIids = 3;
constexpr std::uint32_t kDebugAnnotations = 4;
constexpr std::uint32_t kType = 9;
constexpr std::uint32_t kNameIid = 10;
constexpr std::uint32_t kTrackUuid = 11;
constexpr std::uint32_t kFlowIds = 47;             // fixed64
constexpr std::uint32_t kTerminatingFlowIds = 48;  // fixed64
}  // namespace track_event
namespace annotation {
constexpr std::uint32_t kNameIid = 1;
constexpr std::uint32_t kBool = 2;
constexpr std::uint32_t kInt = 4;
constexpr std::uint32_t kDouble = 5;
constexpr std::uint32_t kString = 6;
}  // namespace annotation
namespace interned {
constexpr std::uint32_t kCategories = 1;
constexpr std::uint32_t kEventNames = 2;
constexpr std::uint32_t kAnnotationNames = 3;
constexpr std::uint32_t kEntryIid = 1;
constexpr std::uint32_t kEntryName = 2;
}  // namespace interned
namespace track_descriptor {
constexpr std::uint32_t kUuid = 1;
constexpr std::uint32_t kName = 2;
constexpr std::uint32_t kProcess = 3;
constexpr std::uint32_t kThread = 4;
constexpr std::uint32_t kParentUuid = 5;
constexpr std::uint32_t kChildOrdering = 11;
constexpr std::uint32_t kSiblingOrderRank = 12;
}  // namespace track_descriptor
namespace process {
constexpr std::uint32_t kPid = 1;
constexpr std::uint32_t kName = 6;
constexpr std::uint32_t kLabels = 8;
}  // namespace process
namespace thread {
constexpr std::uint32_t kPid = 1;
constexpr std::uint32_t kTid = 2;
constexpr std::uint32_t kName = 5;
}  // namespace thread
namespace chrome_events {
constexpr std::uint32_t kMetadata = 2;
}
namespace chrome_metadata {
constexpr std::uint32_t kName = 1;
constexpr std::uint32_t kString = 2;
constexpr std::uint32_t kBool = 3;
constexpr std::uint32_t kInt = 4;
}  // namespace chrome_metadata

constexpr std::uint32_t kClockRealtime = 1;
constexpr std::uint32_t kClockMonotonic = 3;
constexpr std::uint32_t kClockMonotonicRaw = 5;
constexpr std::uint32_t kClockBoottime = 6;
constexpr std::uint32_t kClockLane = 64;  ///< first of the sequence-scoped ids; incremental

constexpr std::uint32_t kFlagStateCleared = 1;
constexpr std::uint32_t kFlagNeedsState = 2;

constexpr std::uint32_t kSliceBegin = 1;
constexpr std::uint32_t kSliceEnd = 2;
constexpr std::uint32_t kInstant = 3;

}  // namespace marey::trace::field
