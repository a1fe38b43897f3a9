#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/trace/reader.h"

namespace marey::trace {

/// Turns packets into events: keeps each sequence's incremental state, pairs begins with ends per track, and in the end
/// sorts and nests. Trusts nothing: every index and length is checked, and what does not decode is named.
class SliceBuilder {
 public:
  SliceBuilder(const ReadOptions& options, Trace* trace) : options_(options), trace_(trace) {}

  /// Decodes one packet. Returns what is wrong with it (the rest of it is kept as far as it decoded), or null. A packet of
  /// compressed packets is not decoded but handed back in `compressed`.
  const char* packet(std::span<const char> body, std::span<const char>* compressed);
  /// After the last packet: closes what is open, sorts, nests, and completes the metadata.
  void finish();

  [[nodiscard]] bool sealed() const { return sealed_; }
  [[nodiscard]] bool metadata_seen() const { return metadata_seen_; }
  /// Whether the trace refers to bytes of the packets since the last call, so that they must be kept.
  bool take_refers() { return std::exchange(refers_, false); }
  /// Begins and marks that decoded.
  [[nodiscard]] std::uint64_t counted() const { return counted_; }

 private:
  struct Sequence {
    bool valid = false;
    bool has_clock = false;
    std::int64_t clock_ns = 0;
    std::uint32_t track = UINT32_MAX;
    [[nodiscard]] bool ready() const { return valid && has_clock && track != UINT32_MAX; }
    std::vector<std::string_view> names;
    std::vector<std::string_view> categories;
    std::vector<std::string_view> keys;
  };
  struct TrackState {
    std::vector<std::uint32_t> open;  ///< indices of events
    std::int64_t last_ns = INT64_MIN;
    bool renest = false;  ///< an event came late: nesting is worked out from the times
  };
  struct PacketView;
  /// A TrackEvent, decoded.
  struct EventFields {
    std::uint32_t type = 0;
    std::uint64_t name = 0;
    std::uint64_t category = 0;
    std::uint64_t flow_id = 0;
    std::uint64_t terminating_flow_id = 0;
    std::span<const std::string_view> annotations;
  };

  bool hot_packet(std::span<const char> body, const char** problem);
  const char* add_event(std::int64_t ts_ns, const EventFields& fields, const Sequence& sequence);
  const char* decode(std::span<const char> body, PacketView* view);
  const char* track_event(const PacketView& view, Sequence& sequence);
  const char* track_descriptor(std::string_view bytes);
  const char* intern(std::string_view bytes, Sequence* sequence);
  const char* defaults(std::string_view bytes, Sequence* sequence);
  const char* clock_snapshot(std::string_view bytes, Sequence* sequence);
  const char* metadata(std::string_view bytes);
  const char* annotations(std::span<const std::string_view> list, const Sequence& sequence, bool is_end, Event* event);
  std::uint32_t track_of(std::uint64_t uuid);
  bool put(std::vector<std::string_view>* table, std::uint64_t iid, std::string_view text);
  void renest();
  void sort_events();

  const ReadOptions& options_;
  Trace* trace_;
  std::unordered_map<std::uint64_t, Sequence> sequences_;
  std::uint64_t cached_id_ = 0;
  Sequence* cached_ = nullptr;
  std::unordered_map<std::uint64_t, std::uint32_t> tracks_;  ///< uuid → index
  std::vector<TrackState> states_;
  std::vector<std::string_view> annotations_;  ///< of the event at hand
  std::uint64_t counted_ = 0;
  std::uint64_t entries_ = 0;    ///< interned
  std::uint64_t gap_slots_ = 0;  ///< of interned ids that were skipped
  std::int64_t last_ns_ = INT64_MIN;
  bool refers_ = false;
  bool sealed_ = false;
  bool metadata_seen_ = false;
};

}  // namespace marey::trace
