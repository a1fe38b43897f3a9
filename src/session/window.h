#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "marey/detail/slot.h"
#include "src/recorder/clock.h"
#include "src/recorder/lane_registry.h"
#include "src/trace/trace_info.h"
#include "src/trace/writer.h"

namespace marey::session {

/// A window that is open: takes the slots of all lanes, keeps what lies inside it, and encodes that into its writer.
/// Drain thread only. The writer is made at the first event (or when the lease says so), so an empty window leaves no
/// file.
class Window {
 public:
  struct Options {
    std::uint64_t id = 0;
    std::uint64_t begin_ticks = 0;
    std::uint32_t class_mask = 0;
    recorder::TickMap map;
  };
  /// Called before the first event is written; returns the writer to use, or null (then the window drops everything).
  using Opener = std::function<trace::WindowWriter*(Window&)>;

  Window(const Options& options, Opener opener) : options_(options), opener_(std::move(opener)) {}

  /// Records of one lane in order; those outside [begin, end) are left out.
  void on_slots(recorder::Lane& lane, const detail::Slot* begin, const detail::Slot* end);
  void on_dropped(recorder::Lane& lane, std::uint64_t count, std::uint64_t since_ticks, std::uint64_t last_ticks);

  /// From here on events at or after `ticks` do not belong to the window.
  void set_end(std::uint64_t ticks) { end_ticks_ = ticks; }
  [[nodiscard]] bool has_end() const { return end_ticks_ != UINT64_MAX; }
  [[nodiscard]] std::uint64_t end_ticks() const { return end_ticks_; }
  /// Closes ranges that are still open, at the end of the window.
  void close_open_ranges();

  /// Makes sure that there is a writer; false when it could not be made.
  bool open();
  [[nodiscard]] bool opened() const { return writer_ != nullptr; }
  [[nodiscard]] trace::WindowWriter* writer() const { return writer_; }
  [[nodiscard]] std::uint64_t id() const { return options_.id; }
  [[nodiscard]] std::uint64_t begin_ticks() const { return options_.begin_ticks; }
  [[nodiscard]] const recorder::TickMap& map() const { return options_.map; }
  [[nodiscard]] std::uint64_t detail_events() const { return detail_events_; }
  /// Latest begin or mark kept; 0 for none.
  [[nodiscard]] std::uint64_t last_event_ticks() const { return last_event_ticks_; }
  [[nodiscard]] std::vector<trace::Loss> losses() const;

 private:
  struct OpenRange {
    std::uint32_t name = 0;
    bool written = false;
  };
  struct LaneState {
    trace::TrackId track = 0;
    std::int64_t last_ns = 0;
    std::vector<OpenRange> open;
  };
  struct AsyncTrack {
    trace::TrackId track = 0;
    std::int64_t last_ns = 0;
    bool busy = false;
  };
  struct AsyncRange {
    std::size_t track = 0;
    std::int64_t begin_ns = 0;
  };
  struct LossRange {
    std::uint64_t count = 0;
    std::uint64_t begin_ticks = 0;
    std::uint64_t end_ticks = 0;
  };

  LaneState& state_of(recorder::Lane& lane);
  void on_begin(LaneState& state, const detail::Slot* slot, const detail::Slot* end);
  void on_end(LaneState& state, const detail::Slot* slot);
  void on_async_begin(const detail::Slot* slot);
  void on_async_end(const detail::Slot* slot);
  void finish_async(std::uint64_t id, std::int64_t end_ns, bool open_at_end);
  /// Decodes payload slots into args_; returns the extras to write.
  trace::BeginExtras decode(const detail::Slot* slot, const detail::Slot* end);
  std::uint32_t stored_name(const detail::Slot& slot);
  std::int64_t time_of(std::uint64_t ticks) const { return options_.map.to_ns(ticks); }
  void count_loss(const char* reason, std::uint64_t count, std::uint64_t begin_ticks, std::uint64_t end_ticks);

  Options options_;
  Opener opener_;
  trace::WindowWriter* writer_ = nullptr;
  bool failed_ = false;
  std::uint64_t end_ticks_ = UINT64_MAX;
  std::uint64_t detail_events_ = 0;
  std::uint64_t last_event_ticks_ = 0;
  std::unordered_map<std::uint64_t, LaneState> lanes_;  // by lane id
  std::uint64_t cached_lane_ = 0;
  LaneState* cached_state_ = nullptr;
  std::vector<AsyncTrack> async_tracks_;
  std::unordered_map<std::uint64_t, AsyncRange> async_open_;
  std::unordered_map<std::uint64_t, std::int64_t>
      async_early_ends_;  // an end of one lane drained before its begin in another
  std::unordered_map<std::string, LossRange> losses_;
  std::vector<trace::Arg> args_;
  std::vector<std::uint32_t> stored_names_;  ///< by name id: the id to store, 0 until looked up
};

}  // namespace marey::session
