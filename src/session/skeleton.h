#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "src/schedule/schedule.h"
#include "src/trace/writer.h"

namespace marey::session {

/// The skeleton of one lease: which stages and units are open, and what lies in the current train step, so that a
/// window that opens late can be given what came before it. Pure bookkeeping: times are ticks, output goes to a
/// callback.
///
/// A unit begins when the one before it ends, but whether it exists is known only when something happens in it: its
/// begin is written at its first event, at a tick inside it, or never (when the loop is over). Units below the
/// schedule's own exist from their first tick on, and begin retroactively.
class Skeleton {
 public:
  struct Event {
    bool is_begin = true;
    bool open_at_end = false;
    std::uint64_t ticks = 0;
    bool is_stage = false;
    std::uint32_t name = 0;
    schedule::Unit unit = schedule::Unit::kTrainStep;
    std::int64_t number = 0;
  };
  using Emit = std::function<void(const Event&)>;

  Skeleton(schedule::Unit own_unit, Emit emit) : own_unit_(own_unit), emit_(std::move(emit)) {}

  void stage_begin(std::uint64_t ticks, std::uint32_t name);
  void stage_end(std::uint64_t ticks, std::uint32_t name);
  /// tentative: nothing says yet that the program counts this kind; it exists only if it is ended by a tick.
  void unit_begin(std::uint64_t ticks, schedule::Unit unit, std::int64_t number, bool tentative);
  void unit_end(std::uint64_t ticks, schedule::Unit unit);
  void unit_cancel(std::uint64_t ticks, schedule::Unit unit);
  /// Something happened at `ticks`: units of the schedule's kind and above that began before it do exist.
  void touch(std::uint64_t ticks);
  /// The lease ends: what is open is closed and marked.
  void finish(std::uint64_t ticks);

  /// Replays the current train step (what is still open stays open), parents first.
  void replay(const Emit& emit) const;
  /// Begins without an end so far, outermost first.
  [[nodiscard]] std::vector<Event> open_ranges() const;
  [[nodiscard]] std::uint64_t trimmed() const { return trimmed_; }

 private:
  struct Slice {
    Event begin;
    std::uint64_t end_ticks = 0;
    bool closed = false;
    bool open_at_end = false;
  };
  struct PendingUnit {
    std::int64_t number = 0;
    std::uint64_t ticks = 0;
    bool written = false;
    bool tentative = false;
  };
  /// Closed slices kept for replay: a train step of more units than this loses its oldest ones from late windows' files
  /// (never from the skeleton trace), so that memory stays flat over a million units.
  static constexpr std::size_t kMaxHistory = 8192;

  void begin_slice(const Event& event);
  void end_slice(std::size_t index, std::uint64_t ticks, bool open_at_end);
  void write_pending(schedule::Unit down_to);
  std::optional<std::size_t> open_unit(schedule::Unit unit) const;
  void close_above(std::size_t index, std::uint64_t ticks);

  schedule::Unit own_unit_;
  Emit emit_;
  std::array<std::optional<PendingUnit>, 3> pending_;  // by unit
  std::deque<Slice> history_;                          // in order of writing
  std::vector<Slice> open_;                            // innermost last
  std::uint64_t trimmed_ = 0;
};

}  // namespace marey::session
