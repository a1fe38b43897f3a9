#include "src/session/lease.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "src/base/log.h"
#include "src/event/categories.h"
#include "src/event/string_table.h"

namespace marey::session {
namespace {

/// Unit ranges are named with their number ("mini_batch 3"); past this the number is in the argument alone, so that a
/// run of a million units does not fill the name table.
constexpr std::int64_t kMaxNamedNumber = 99'999;
constexpr std::uint64_t kMaxAnnounced = 3;

std::string random_id() {
  std::random_device random;
  return fmt::format("{:06x}", random() & 0xffffffU);
}

std::uint32_t name_of(const Skeleton::Event& event) {
  if (event.is_stage) return event.name;
  const std::string_view unit = schedule::unit_name(event.unit);
  if (event.number > kMaxNamedNumber || event.number < 0) return event::names().intern(unit, event::kUnitCategory);
  return event::names().intern(fmt::format("{} {}", unit, event.number), event::kUnitCategory);
}

std::string describe_units(const trace::TraceInfo& info) {
  std::string text;
  if (info.unit && info.first_unit) {
    text = fmt::format("{} {}", schedule::unit_name(*info.unit), *info.first_unit);
    if (info.last_unit && *info.last_unit != *info.first_unit) text += fmt::format("-{}", *info.last_unit);
    if (info.train_step && *info.unit != schedule::Unit::kTrainStep)
      text += fmt::format(" of train_step {}", *info.train_step);
  } else {
    text = info.train_step ? fmt::format("train_step {}", *info.train_step) : "everything from start to stop";
  }
  return text;
}

std::string describe_bytes(std::uint64_t bytes) {
  if (bytes < 10 * 1024) return fmt::format("{} bytes", bytes);
  if (bytes < 10 * 1024 * 1024) return fmt::format("{} KiB", bytes / 1024);
  return fmt::format("{} MiB", bytes / (1024 * 1024));
}

}  // namespace

Lease::Lease(Options options, std::shared_ptr<Results> results)
    : options_(std::move(options)),
      results_(std::move(results)),
      skeleton_(options_.unit, [this](const Skeleton::Event& event) { emit(event); }) {}

std::string Lease::track_name() const {
  return options_.info.role.empty() ? "units" : fmt::format("{} units", options_.info.role);
}

void Lease::write_skeleton(WindowState& state, const Skeleton::Event& event) {
  if (!state.has_skeleton_track) {
    state.skeleton_track = state.writer->add_track(track_name(), -10);
    state.has_skeleton_track = true;
  }
  const std::int64_t ts_ns = state.window->map().to_ns(event.ticks);
  if (!event.is_begin) {
    // An end closes the innermost open range that it names; what was never written here is not closed here.
    const auto same = [&event](const Skeleton::Event& open) {
      return open.is_stage == event.is_stage &&
             (event.is_stage ? open.name == event.name : open.unit == event.unit && open.number == event.number);
    };
    const auto found = std::find_if(state.skeleton_open.rbegin(), state.skeleton_open.rend(), same);
    if (found == state.skeleton_open.rend()) return;
    state.skeleton_open.erase(std::next(found).base());
    state.writer->end(state.skeleton_track, ts_ns, event.open_at_end);
    return;
  }
  state.skeleton_open.push_back(event);
  if (event.is_stage) {
    state.writer->begin(state.skeleton_track, ts_ns, event.name);
    return;
  }
  static const std::uint32_t unit_key = event::names().intern("unit", "arg");
  static const std::uint32_t index_key = event::names().intern("index", "arg");
  const trace::Arg args[] = {
      {unit_key, trace::Arg::Type::kString, 0, 0, schedule::unit_name(event.unit)},
      {index_key, trace::Arg::Type::kInt, event.number, 0, {}},
  };
  trace::BeginExtras extras;
  extras.args = args;
  state.writer->begin(state.skeleton_track, ts_ns, name_of(event), extras);
}

void Lease::emit(const Skeleton::Event& event) {
  if (skeleton_trace_ && skeleton_trace_->writer) write_skeleton(*skeleton_trace_, event);
  for (WindowState& state : windows_) {
    if (state.replayed && !state.ended) write_skeleton(state, event);
  }
}

void Lease::replay_into(WindowState& state) {
  if (state.replayed || !state.ordered || state.writer == nullptr) return;
  state.replayed = true;
  if (options_.skeleton)
    skeleton_.replay([this, &state](const Skeleton::Event& event) { write_skeleton(state, event); });
}

trace::WindowWriter* Lease::open_writer(WindowState& state, const Environment& environment) {
  auto created =
      trace::WindowWriter::create({.folder = options_.folder, .files = environment.files, .names = &event::names()},
                                  state.info, state.anchor.clocks);
  if (!created.is_ok()) {
    failure_ = created.status().message();
    if (state.info.kind == trace::TraceKind::kWindow) results_->window_failed();
    results_->set_message(failure_);
    base::log_once(fmt::format("open {} {}", options_.folder, static_cast<int>(created.status().code())),
                   fmt::format("{} (this {} is lost, training goes on)", created.status().message(),
                               state.info.kind == trace::TraceKind::kWindow ? "window" : "skeleton trace"));
    return nullptr;
  }
  state.writer = std::move(created).value();
  return state.writer.get();
}

recorder::TickMap Lease::begin_info(WindowState& state, trace::TraceKind kind, const Control& control,
                                    const Environment& environment) const {
  const recorder::TickMap map = environment.calibration->map_now(&state.anchor);
  trace::TraceInfo& info = state.info;
  info = options_.info;
  info.kind = kind;
  info.train_step = control.extra->train_step;
  info.id = random_id();
  info.begin_ns = map.to_ns(control.ticks);
  info.begin_unix_ns = state.anchor.clocks.realtime_ns - (state.anchor.clocks.monotonic_ns - info.begin_ns);
  info.ticks_per_ns = map.ticks_per_ns();
  info.event_cost_ns = environment.event_cost_ns;
  info.sources = control.extra->sources;
  return map;
}

void Lease::begin_window(const Control& control, const Environment& environment) {
  windows_.emplace_back();
  WindowState& state = windows_.back();
  state.planned = control.extra->planned;
  state.last_unit_end_ticks = control.ticks;
  const recorder::TickMap map = begin_info(state, trace::TraceKind::kWindow, control, environment);
  trace::TraceInfo& info = state.info;
  info.stage = control.extra->text;
  info.planned_units = control.extra->planned;
  if (options_.has_schedule) {
    info.unit = options_.unit;
    info.first_unit = control.number;
    info.last_unit = control.number + control.extra->planned - 1;
  } else {
    info.unit.reset();
    info.schedule.active = 0;
  }
  state.window =
      std::make_unique<Window>(Window::Options{control.extra->window_id, control.ticks, options_.class_mask, map},
                               [this, &environment](Window& window) -> trace::WindowWriter* {
                                 WindowState* mine = find(window.id());
                                 trace::WindowWriter* writer = open_writer(*mine, environment);
                                 if (writer != nullptr) {
                                   results_->window_opened();
                                   replay_into(*mine);
                                 }
                                 return writer;
                               });
}

Lease::WindowState* Lease::find(std::uint64_t window_id) {
  for (WindowState& state : windows_) {
    if (state.window->id() == window_id) return &state;
  }
  return nullptr;
}

void Lease::prepare(const Control& control, const Environment& environment) {
  if (control.kind == Control::Kind::kWindowBegin) {
    begin_window(control, environment);
  } else if (control.kind == Control::Kind::kWindowEnd) {
    if (WindowState* state = find(control.extra->window_id)) state->window->set_end(control.ticks);
  }
}

void Lease::on_slots(recorder::Lane& lane, const detail::Slot* begin, const detail::Slot* end) {
  for (WindowState& state : windows_) state.window->on_slots(lane, begin, end);
}

void Lease::on_dropped(recorder::Lane& lane, std::uint64_t count, std::uint64_t since_ticks, std::uint64_t last_ticks) {
  for (WindowState& state : windows_) state.window->on_dropped(lane, count, since_ticks, last_ticks);
}

void Lease::apply(const Control& control, const Environment& environment) {
  // Events of a scheduled window prove that the unit in which they lie exists.
  for (WindowState& state : windows_) {
    if (options_.has_schedule && state.ordered && !state.ended && state.window->last_event_ticks() != 0) {
      skeleton_.touch(std::min(state.window->last_event_ticks(), control.ticks));
    }
  }
  switch (control.kind) {
    case Control::Kind::kLeaseBegin:
      start_skeleton_trace(control, environment);
      break;
    case Control::Kind::kStageBegin:
      skeleton_.stage_begin(control.ticks, control.name);
      break;
    case Control::Kind::kStageEnd:
      skeleton_.stage_end(control.ticks, control.name);
      break;
    case Control::Kind::kUnitBegin:
      skeleton_.unit_begin(control.ticks, control.unit, control.number, control.tentative);
      break;
    case Control::Kind::kUnitEnd:
      for (WindowState& state : windows_) {
        if (!state.ordered || state.ended) continue;
        state.window->open();  // the next tick opens a window that saw no event
        if (control.unit == options_.unit) state.last_unit_end_ticks = control.ticks;
      }
      skeleton_.unit_end(control.ticks, control.unit);
      break;
    case Control::Kind::kUnitCancel:
      skeleton_.unit_cancel(control.ticks, control.unit);
      break;
    case Control::Kind::kWindowBegin:
      if (WindowState* state = find(control.extra->window_id)) {
        state->ordered = true;
        replay_into(*state);
      }
      break;
    case Control::Kind::kWindowEnd:
      end_window(control);
      break;
    case Control::Kind::kLeaseEnd:
      finish(control, environment);
      break;
  }
}

void Lease::end_window(const Control& control) {
  WindowState* state = find(control.extra->window_id);
  if (state == nullptr) return;
  state->ended = true;
  trace::TraceInfo& info = state->info;
  const std::uint64_t last_event_ticks = state->window->last_event_ticks();
  const bool unit_in_flight = last_event_ticks >= state->last_unit_end_ticks && last_event_ticks != 0 &&
                              !control.extra->complete && !control.extra->discard_if_no_unit;
  info.recorded_units = control.extra->recorded + (control.extra->count_unit_in_flight && unit_in_flight ? 1 : 0);
  info.complete =
      options_.has_schedule ? state->planned > 0 && info.recorded_units == state->planned : control.extra->complete;
  info.end_reason = control.extra->text;
  info.end_ns = state->window->map().to_ns(control.ticks);
  if (info.first_unit) {
    const std::int64_t whole = *info.first_unit + control.extra->recorded - 1;
    info.last_unit = std::max(*info.first_unit, unit_in_flight ? whole + 1 : whole);
  }
  state->discard = control.extra->discard_if_no_unit && info.recorded_units == 0;
  if (state->writer == nullptr) return;
  // Stages and units that go on after the window end with it, in its file.
  while (!state->skeleton_open.empty()) {
    Skeleton::Event end = state->skeleton_open.back();
    end.is_begin = false;
    end.open_at_end = true;
    end.ticks = std::max(control.ticks, end.ticks);
    write_skeleton(*state, end);
  }
}

void Lease::start_skeleton_trace(const Control& control, const Environment& environment) {
  if (!options_.skeleton) return;
  skeleton_trace_ = std::make_unique<WindowState>();
  WindowState& state = *skeleton_trace_;
  const recorder::TickMap map = begin_info(state, trace::TraceKind::kSkeleton, control, environment);
  state.window = std::make_unique<Window>(Window::Options{0, control.ticks, 0, map}, [](Window&) { return nullptr; });
  if (!options_.has_schedule) state.info.unit.reset();
  open_writer(state, environment);
}

void Lease::finish(const Control& control, const Environment& environment) {
  skeleton_.finish(control.ticks);
  ended_ = true;
  nothing_ = control.extra->nothing;
  if (!skeleton_trace_) return;
  WindowState& state = *skeleton_trace_;
  state.ended = true;
  state.window->set_end(control.ticks);
  state.info.end_reason = control.extra->text;
  state.info.end_ns = state.window->map().to_ns(control.ticks);
  state.info.complete = control.extra->complete;
  if (state.writer) seal(state, environment);
  skeleton_trace_.reset();
}

void Lease::seal(WindowState& state, const Environment& environment) {
  trace::TraceInfo& info = state.info;
  state.window->close_open_ranges();
  recorder::ClockAnchor anchor = environment.clock->sample();
  info.clock_residual_ns = recorder::Calibration::residual_ns(state.window->map(), anchor);
  info.losses = state.window->losses();
  info.events = state.writer->events();
  const Status status = state.writer->seal(info, anchor.clocks);

  SealedTrace sealed;
  sealed.path = state.writer->path();
  sealed.error = status.is_ok() ? "" : status.message();
  sealed.stage = info.stage;
  sealed.is_skeleton = info.kind == trace::TraceKind::kSkeleton;
  sealed.complete = info.complete;
  sealed.train_step = info.train_step;
  sealed.unit = info.unit.value_or(options_.unit);
  sealed.first_unit = info.first_unit.value_or(0);
  sealed.last_unit = info.last_unit.value_or(0);
  sealed.recorded_units = info.recorded_units;
  sealed.planned_units = info.planned_units;
  sealed.events = info.events;
  sealed.bytes = state.writer->bytes();
  for (const trace::Loss& loss : info.losses) sealed.lost += loss.count;

  if (!status.is_ok()) {
    failure_ = status.message();
    results_->set_message(failure_);
    base::log_once(fmt::format("seal {} {}", options_.folder, static_cast<int>(status.code())),
                   fmt::format("{}; what was written is in '{}'", status.message(), sealed.path));
  } else if (!sealed.is_skeleton) {
    ++windows_recorded_;
    const std::string partial =
        info.complete || info.planned_units == 0
            ? (info.complete ? "" : fmt::format(", partial ({})", info.end_reason))
            : fmt::format(", partial: {} of {} whole ({})", info.recorded_units, info.planned_units, info.end_reason);
    const std::string line = fmt::format("recorded {}{}: {} events, {}{}: {}", describe_units(info), partial,
                                         sealed.events, describe_bytes(sealed.bytes),
                                         sealed.lost == 0 ? "" : fmt::format(", {} LOST", sealed.lost), sealed.path);
    results_->set_message(line);
    if (!options_.quiet && windows_announced_ < kMaxAnnounced) {
      base::log_line(++windows_announced_ == kMaxAnnounced ? line + " (further windows are not announced)" : line);
    }
  }
  results_->add(std::move(sealed));
}

void Lease::seal_ended(const Environment& environment) {
  for (auto state = windows_.begin(); state != windows_.end();) {
    if (!state->ended) {
      ++state;
      continue;
    }
    if (state->writer && state->discard) {
      const Status status = state->writer->discard();
      if (!status.is_ok()) base::log_line(status.message());
      results_->window_discarded();
    } else if (state->writer) {
      seal(*state, environment);
    }
    results_->done();  // the window's own expect()
    state = windows_.erase(state);
  }
  if (!ended_ || told_ || !windows_.empty()) return;
  told_ = true;
  if (windows_recorded_ == 0) {
    const std::string line = "nothing was recorded because " + (failure_.empty() ? nothing_ : failure_);
    results_->set_message(line);
    if (!options_.quiet)
      base::log_line(options_.info.role.empty() ? line : fmt::format("{}: {}", options_.info.role, line));
  }
  results_->done();  // the lease's own expect()
}

void Lease::flush() {
  const auto flush_one = [this](WindowState& state) {
    if (!state.writer) return;
    const Status status = state.writer->flush();
    if (status.is_ok()) return;
    results_->set_message(status.message());
    base::log_once(fmt::format("flush {}", state.writer->path()), status.message() + " (training goes on)");
  };
  if (skeleton_trace_) flush_one(*skeleton_trace_);
  for (WindowState& state : windows_) flush_one(state);
}

}  // namespace marey::session
