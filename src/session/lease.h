#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "src/base/file_output.h"
#include "src/recorder/clock.h"
#include "src/session/control.h"
#include "src/session/results.h"
#include "src/session/skeleton.h"
#include "src/session/window.h"
#include "src/trace/trace_info.h"

namespace marey::session {

/// From one start() to its stop(), as the drain sees it: the skeleton, the windows, and the files that they become.
/// Made by a training thread, then used by the drain thread alone.
class Lease {
 public:
  struct Options {
    trace::TraceInfo info;  ///< what all traces of the lease share
    std::string folder;
    std::uint32_t class_mask = 0;
    schedule::Unit unit = schedule::Unit::kMiniBatch;
    bool has_schedule = false;
    bool skeleton = true;
    bool quiet = false;
  };
  struct Environment {
    base::FileSystem* files = nullptr;
    recorder::Calibration* calibration = nullptr;
    const recorder::Clock* clock = nullptr;
    double event_cost_ns = 0;
  };

  Lease(Options options, std::shared_ptr<Results> results);

  /// First look at a control, before lanes are drained: windows learn where they begin and end.
  void prepare(const Control& control, const Environment& environment);
  /// Second look, after lanes were drained up to the cut: skeleton events, endings.
  void apply(const Control& control, const Environment& environment);
  /// Windows in flight see each run of slots.
  void on_slots(recorder::Lane& lane, const detail::Slot* begin, const detail::Slot* end);
  void on_dropped(recorder::Lane& lane, std::uint64_t count, std::uint64_t since_ticks, std::uint64_t last_ticks);
  /// Seals what has ended (after the last look at the lanes).
  void seal_ended(const Environment& environment);
  /// Hands buffered packets to the files.
  void flush();

  /// Its end was applied and every trace is sealed: the session forgets it.
  [[nodiscard]] bool finished() const { return told_; }
  [[nodiscard]] bool recording() const { return !windows_.empty(); }

 private:
  struct WindowState {
    std::unique_ptr<Window> window;
    std::unique_ptr<trace::WindowWriter> writer;
    trace::TraceInfo info;
    recorder::ClockAnchor anchor;
    std::int64_t planned = 0;
    bool ordered = false;  ///< its begin was applied: skeleton events go to it from now on
    bool replayed = false;
    bool ended = false;
    bool discard = false;
    std::uint64_t last_unit_end_ticks = 0;
    std::vector<Skeleton::Event> skeleton_open;  ///< skeleton ranges that are open in its file
    trace::TrackId skeleton_track = 0;
    bool has_skeleton_track = false;
  };

  void emit(const Skeleton::Event& event);
  void write_skeleton(WindowState& state, const Skeleton::Event& event);
  /// What every trace says of its begin; returns the map that it is recorded with.
  recorder::TickMap begin_info(WindowState& state, trace::TraceKind kind, const Control& control,
                               const Environment& environment) const;
  void begin_window(const Control& control, const Environment& environment);
  void end_window(const Control& control);
  trace::WindowWriter* open_writer(WindowState& state, const Environment& environment);
  void replay_into(WindowState& state);
  void start_skeleton_trace(const Control& control, const Environment& environment);
  void seal(WindowState& state, const Environment& environment);
  void finish(const Control& control, const Environment& environment);
  WindowState* find(std::uint64_t window_id);
  [[nodiscard]] std::string track_name() const;

  Options options_;
  std::shared_ptr<Results> results_;
  Skeleton skeleton_;
  std::list<WindowState> windows_;
  std::unique_ptr<WindowState> skeleton_trace_;
  std::uint64_t windows_recorded_ = 0;
  std::uint64_t windows_announced_ = 0;
  std::string nothing_;  ///< told when the lease ends without a window
  std::string failure_;  ///< why a window could not be made or written, if one could not
  bool ended_ = false;
  bool told_ = false;
};

}  // namespace marey::session
