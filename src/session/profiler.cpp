#include "src/session/profiler.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "marey/detail/slot.h"
#include "src/base/log.h"
#include "src/event/categories.h"
#include "src/event/string_table.h"

namespace marey::session {
namespace {

using detail::EventClass;
using schedule::Action;
using schedule::Next;
using schedule::Unit;

constexpr std::int64_t kForever = std::int64_t{1} << 62;

bool records(Action action) { return action == Action::kRecord || action == Action::kRecordAndSave; }

std::string host_name() {
  char name[256] = "";
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

std::size_t index_of(Unit unit) { return static_cast<std::size_t>(unit); }

}  // namespace

Result<Contents> parse_contents(const std::vector<std::string>& words) {
  constexpr std::uint32_t kOutline =
      class_bit(EventClass::kUser) | class_bit(EventClass::kUserScope) | class_bit(EventClass::kBackward);
  constexpr std::uint32_t kCpu = kOutline | class_bit(EventClass::kOperator);
  Contents contents;
  contents.class_mask = class_bit(EventClass::kUser);
  for (const std::string& word : words) {
    if (word == "outline") {
      contents.class_mask |= kOutline;
    } else if (word == "cpu") {
      contents.class_mask |= kCpu;
    } else if (word == "shapes") {
      contents.class_mask |= kCpu;
      contents.shapes = true;
    } else if (word == "memory" || word == "stack" || word == "module" || word == "npu" || word == "cuda") {
      base::log_once("contents " + word, fmt::format("contents '{}' is not supported yet and is left out; supported are "
                                                     "outline, cpu, shapes", word));
      continue;
    } else {
      return Status::invalid_argument(fmt::format(
          "contents '{}' is not known; choose from outline, cpu, shapes, memory, stack, module, npu, cuda", word));
    }
    contents.names.push_back(word);
  }
  return contents;
}

Result<std::unique_ptr<Profiler>> Profiler::create(Session& session, Options options) {
  if (options.schedule) {
    MAREY_RETURN_IF_ERROR(schedule::validate(*options.schedule));
    if (options.schedule->active == 0) options.schedule.reset();
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return Status::invalid_argument(fmt::format("rank {} of world_size {} is not possible; rank counts from 0", options.rank,
                                                options.world_size));
  }
  for (const std::int64_t step : options.steps) {
    if (step < 0) return Status::invalid_argument(fmt::format("steps holds {}: train steps are numbered from 0", step));
  }
  if (options.contents.empty()) options.contents = {"cpu"};
  auto contents = parse_contents(options.contents);
  if (!contents.is_ok()) return contents.status();
  MAREY_RETURN_IF_ERROR(session.files().create_folders(options.out));
  MAREY_RETURN_IF_ERROR(session.files().check_writable(options.out));
  std::unique_ptr<Profiler> profiler(new Profiler(session, std::move(options), std::move(contents).value()));
  session.add(profiler.get());
  return profiler;
}

Profiler::Profiler(Session& session, Options options, Contents contents)
    : session_(session),
      options_(std::move(options)),
      contents_(std::move(contents)),
      results_(std::make_shared<Results>()),
      quiet_steps_(kForever),
      granted_(kForever) {}

Profiler::~Profiler() {
  session_.remove(this);
  stop("destroyed");
}

Control Profiler::control(Control::Kind kind) const {
  Control control;
  control.kind = kind;
  control.lease = lease_.get();
  return control;
}

Control Profiler::control_with_extra(Control::Kind kind) const {
  Control with = control(kind);
  with.extra = std::make_unique<Control::Extra>();
  return with;
}

std::int64_t Profiler::label(Unit unit) const {
  return numbers_[index_of(unit)] + (unit == Unit::kTrainStep ? train_step_base_.value_or(0) : 0);
}

bool Profiler::applies_here() const {
  if (!options_.steps.empty() &&
      std::find(options_.steps.begin(), options_.steps.end(), label(Unit::kTrainStep)) == options_.steps.end()) {
    return false;
  }
  if (options_.schedule || options_.stages.empty()) return true;
  // Without a schedule `stages` chooses what is recorded by itself.
  return std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) { return stage.scheduled; });
}

Action Profiler::action_now() const {
  if (!running_ || !applies_here()) return Action::kNone;
  if (!options_.schedule) return Action::kRecord;
  if (options_.unit != Unit::kTrainStep && !units_current_) return Action::kNone;
  return schedule::action_of(*options_.schedule, position());
}

void Profiler::settle_quiet_steps() {
  // Steps that were let pass since the last look. Threads that found nothing left come here by themselves, one by one.
  const std::int64_t left = quiet_steps_.exchange(0, std::memory_order_relaxed);
  const std::int64_t used = granted_ - std::max<std::int64_t>(left, 0);
  granted_ = 0;
  if (!running_ || used <= 0 || (options_.unit != Unit::kTrainStep && !units_current_)) return;
  units_seen_ += static_cast<std::uint64_t>(used);
  numbers_[index_of(options_.unit)] += used;
  ticked_[index_of(options_.unit)] = true;
}

void Profiler::begin_units(ControlBatch* controls, Unit from) {
  for (int u = static_cast<int>(from); u <= static_cast<int>(Unit::kMicroBatch); ++u) {
    const auto unit = static_cast<Unit>(u);
    if (unit != Unit::kTrainStep && !units_current_) return;
    // Below the schedule's unit a kind exists from its first tick on; the skeleton lets it begin retroactively.
    Control begin = control(Control::Kind::kUnitBegin);
    begin.unit = unit;
    begin.number = label(unit);
    // Unknown so far whether the program counts train steps: known at the first tick of one.
    begin.tentative = unit == Unit::kTrainStep && options_.unit != Unit::kTrainStep && !train_step_base_ &&
                      !ticked_[index_of(Unit::kTrainStep)];
    controls->add(std::move(begin));
  }
}

void Profiler::cancel_units(ControlBatch* controls) {
  if (!units_current_) return;
  Control cancel = control(Control::Kind::kUnitCancel);
  cancel.unit = Unit::kMiniBatch;
  controls->add(std::move(cancel));
  numbers_[index_of(Unit::kMiniBatch)] = 0;
  numbers_[index_of(Unit::kMicroBatch)] = 0;
}

Control Profiler::window_end(const Change& change) {
  Control end = control_with_extra(Control::Kind::kWindowEnd);
  Control::Extra& extra = *end.extra;
  extra.window_id = window_->id;
  extra.recorded = window_->recorded;
  extra.complete = options_.schedule ? window_->recorded == window_->planned : !change.failed;
  extra.count_unit_in_flight = change.stopping && !change.failed && options_.schedule &&
                               window_->recorded + 1 == window_->planned && !ticked_[index_of(options_.unit)];
  extra.discard_if_no_unit = change.units_over;
  extra.text = extra.complete && !change.stopping ? "schedule" : change.window_reason;
  window_.reset();
  results_->expect();
  return end;
}

Control Profiler::window_begin() {
  window_ = OpenWindow{++windows_begun_, position(), 0, 0};
  Control begin = control_with_extra(Control::Kind::kWindowBegin);
  Control::Extra& extra = *begin.extra;
  extra.window_id = window_->id;
  if (options_.schedule) {
    begin.number = label(options_.unit);
    // A window may begin in the middle of its active units when the profiler was started there.
    std::int64_t last = position();
    if (schedule::action_of(*options_.schedule, last) == Action::kRecord) last = *schedule::next_change(*options_.schedule, last);
    window_->planned = extra.planned = last - position() + 1;
  }
  if (train_step_base_ || ticked_[index_of(Unit::kTrainStep)] || options_.unit == Unit::kTrainStep) {
    extra.train_step = label(Unit::kTrainStep);
  }
  for (const Stage& stage : stages_) {
    if (stage.scheduled) extra.text = stage.text;
  }
  extra.sources = session_.sources().states();
  return begin;
}

void Profiler::transition(std::unique_lock<std::mutex>& lock, ControlBatch ending, ControlBatch beginning,
                          const Change& change) {
  const Action before = action_;
  const Action next = action_now();
  // Units that restart end the window that was open in the old ones, whatever the schedule says of the new unit.
  const Action closing_from = change.units_over && records(before) && window_ ? Action::kRecordAndSave : before;
  const schedule::Transition table = schedule::transition(closing_from, change.stopping ? Next::kStop : static_cast<Next>(next));
  action_ = next;
  const std::uint64_t epoch = ++epoch_;

  const bool armed_before = before != Action::kNone;
  const bool armed_after = next != Action::kNone;
  const bool ends = table.close_window && window_.has_value();
  // A unit that a tick ended belongs to the window that ends with it; one that is cancelled does not.
  ControlBatch batch;
  if (ends && change.units_over) batch.add(window_end(change));
  batch.add(std::move(ending));
  if (ends && !change.units_over) batch.add(window_end(change));
  batch.add(std::move(beginning));

  const bool opens = records(next) && !window_;
  if (opens && armed_before) {
    // Back to back, or out of the warm-up: the old unit's end is the window's begin, to the tick.
    batch.add(window_begin());
    ends ? session_.post_window_end(std::move(batch)) : session_.post_window_begin(std::move(batch));
  } else if (ends) {
    session_.post_window_end(std::move(batch));
  } else if (!batch.empty()) {
    session_.post(std::move(batch));
  }

  const bool warms = next == Action::kWarmup;
  const bool warming_change = warms != warming_;
  warming_ = warms;
  if (armed_before == armed_after && !warming_change) return;
  lock.unlock();
  if (warming_change && warms) session_.set_warming(true);
  if (armed_before != armed_after || change.stopping) {
    session_.sources().want(this, armed_after ? SourceSet::Wish{contents_.class_mask, contents_.shapes} : SourceSet::Wish{});
  }
  if (warming_change && !warms) session_.set_warming(false);
  lock.lock();
  // The window begins once every source has confirmed that it is armed; if another thread moved on meanwhile, its own
  // transition has done what the state needs.
  if (opens && !armed_before && running_ && !window_ && (epoch_ == epoch || records(action_))) {
    ControlBatch begin;
    begin.add(window_begin());
    session_.post_window_begin(std::move(begin));
  }
}

void Profiler::start(std::optional<std::int64_t> train_step) {
  std::unique_lock lock(mutex_);
  if (running_) {
    ++starts_ignored_;
    base::log_once(fmt::format("start {}", options_.role),
                   fmt::format("profiler '{}' runs already; this start() changes nothing", options_.role));
    return;
  }
  settle_quiet_steps();
  running_ = true;
  train_step_base_ = train_step;
  numbers_ = {};
  ticked_ = {};
  stages_.clear();
  loop_over_ = false;
  stages_used_ = !options_.stages.empty();
  units_current_ = !stages_used_;
  units_seen_ = 0;
  scheduled_stages_ = 0;
  step_matched_ = applies_here();
  action_ = Action::kNone;
  ++epoch_;

  Lease::Options lease;
  lease.folder = options_.out;
  lease.class_mask = contents_.class_mask;
  lease.unit = options_.unit;
  lease.has_schedule = options_.schedule.has_value();
  lease.skeleton = options_.skeleton;
  lease.quiet = options_.quiet;
  trace::TraceInfo& info = lease.info;
  info.marey_version = MAREY_VERSION;
  info.job = options_.job;
  info.host = host_name();
  info.pid = ::getpid();
  info.rank = options_.rank;
  info.world_size = options_.world_size;
  info.parallel = options_.parallel;
  info.role = options_.role;
  info.unit = options_.unit;
  if (options_.schedule) info.schedule = *options_.schedule;
  info.contents = contents_.names;
  lease_ = std::make_shared<Lease>(std::move(lease), results_);
  results_->set_message("");

  ControlBatch first;
  Control begin = control_with_extra(Control::Kind::kLeaseBegin);
  begin.extra->lease = lease_;
  begin.extra->train_step = train_step;
  begin.extra->sources = session_.sources().states();
  first.add(std::move(begin));
  const bool counted = units_current_;
  units_current_ = false;
  begin_units(&first, Unit::kTrainStep);
  units_current_ = counted;
  session_.post(std::move(first));
  if (!options_.quiet) log_plan();

  ControlBatch units;
  begin_units(&units, Unit::kMiniBatch);
  transition(lock, {}, std::move(units), {});
  grant_quiet_steps();
}

void Profiler::grant_quiet_steps() {
  granted_ = 0;
  if (!running_) {
    granted_ = kForever;
  } else if (!options_.skeleton) {
    if (options_.unit != Unit::kTrainStep && !units_current_) {
      granted_ = kForever;
    } else if (options_.schedule && options_.steps.empty() && !records(action_)) {
      const auto change = schedule::next_change(*options_.schedule, position());
      granted_ = change ? *change - position() - 1 : kForever;
    }
  }
  quiet_steps_.store(granted_, std::memory_order_relaxed);
}

void Profiler::tick(Unit unit) {
  std::unique_lock lock(mutex_);
  settle_quiet_steps();
  if (running_ && (unit == Unit::kTrainStep || units_current_)) {
    Control end = control(Control::Kind::kUnitEnd);
    end.unit = unit;
    end.number = label(unit);
    ControlBatch ending;
    ending.add(std::move(end));

    loop_over_ = false;
    ++numbers_[index_of(unit)];
    for (std::size_t below = index_of(unit) + 1; below < numbers_.size(); ++below) numbers_[below] = 0;
    ticked_[index_of(unit)] = true;
    Change change;
    if (unit == options_.unit) {
      ++units_seen_;
      if (window_) ++window_->recorded;
    } else if (unit < options_.unit && options_.schedule) {
      change.units_over = true;
      change.window_reason = "units_restarted";
    }
    step_matched_ = step_matched_ || applies_here();
    ControlBatch beginning;
    begin_units(&beginning, unit);
    if (unit > options_.unit) {
      ending.add(std::move(beginning));
      session_.post(std::move(ending));
    } else {
      transition(lock, std::move(ending), std::move(beginning), change);
    }
  }
  grant_quiet_steps();
}

void Profiler::end_units() {
  // The unit in flight goes on until something says otherwise: another loop (epochs count through), the end of its stage,
  // or stop(), which then knows that it never was a unit.
  const std::lock_guard lock(mutex_);
  settle_quiet_steps();
  loop_over_ = running_;
  grant_quiet_steps();
}

void Profiler::stage_begin(const std::string& name, bool scheduled) {
  std::unique_lock lock(mutex_);
  settle_quiet_steps();
  if (running_) {
    scheduled = scheduled || std::find(options_.stages.begin(), options_.stages.end(), name) != options_.stages.end();
    const bool inside = std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) { return stage.scheduled; });
    scheduled = scheduled && !inside;  // units are counted by the outermost scheduled stage
    const std::uint32_t id = event::names().intern(name, event::kStageCategory);
    ControlBatch ending;
    if (scheduled) {
      // From the first scheduled stage on, units are counted in scheduled stages alone.
      cancel_units(&ending);
      stages_used_ = true;
      units_current_ = true;
      ++scheduled_stages_;
      numbers_[index_of(Unit::kMiniBatch)] = 0;
      numbers_[index_of(Unit::kMicroBatch)] = 0;
    }
    stages_.push_back({id, name, scheduled});
    ControlBatch beginning;
    Control begin = control(Control::Kind::kStageBegin);
    begin.name = id;
    beginning.add(std::move(begin));
    if (scheduled) {
      begin_units(&beginning, Unit::kMiniBatch);
      const bool restarts = options_.unit != Unit::kTrainStep && options_.schedule;
      transition(lock, std::move(ending), std::move(beginning),
                 {.window_reason = "units_restarted", .units_over = restarts});
    } else {
      session_.post(std::move(beginning));
    }
  }
  grant_quiet_steps();
}

void Profiler::stage_end(const std::string& name) {
  std::unique_lock lock(mutex_);
  settle_quiet_steps();
  const auto found = std::find_if(stages_.rbegin(), stages_.rend(), [&name](const Stage& stage) { return stage.text == name; });
  if (running_ && found != stages_.rend()) {
    const auto first = std::prev(found.base());
    const bool was_scheduled = std::any_of(first, stages_.end(), [](const Stage& stage) { return stage.scheduled; });
    ControlBatch ending;
    if (was_scheduled) cancel_units(&ending);
    Control end = control(Control::Kind::kStageEnd);
    end.name = first->name;
    ending.add(std::move(end));
    stages_.erase(first, stages_.end());
    if (was_scheduled) {
      units_current_ = false;
      const bool over = options_.unit != Unit::kTrainStep && options_.schedule;
      transition(lock, std::move(ending), {}, {.window_reason = "stage_end", .units_over = over});
    } else {
      session_.post(std::move(ending));
    }
  }
  grant_quiet_steps();
}

void Profiler::stop(const char* reason) {
  std::unique_lock lock(mutex_);
  settle_quiet_steps();
  if (running_) {
    // State first: whatever happens below, the profiler is stopped and can be started again.
    const bool failed = std::string_view(reason) != "stop";
    Control end = control_with_extra(Control::Kind::kLeaseEnd);
    end.extra->text = reason;
    end.extra->complete = !failed;
    end.extra->nothing = why_nothing(std::string_view(reason) == "exception");
    results_->expect();  // before it stops running: until the lease is sealed a trace may come
    running_ = false;
    stages_.clear();
    const bool over = loop_over_ && options_.schedule;
    loop_over_ = false;
    ControlBatch beginning;
    beginning.add(std::move(end));
    Change change;
    change.window_reason = reason;
    change.stopping = true;
    change.failed = failed;
    change.units_over = over;
    transition(lock, {}, std::move(beginning), change);
    lease_.reset();
  }
  grant_quiet_steps();
}

Profiler::Snapshot Profiler::snapshot() {
  Snapshot snapshot;
  {
    const std::lock_guard lock(mutex_);
    settle_quiet_steps();
    snapshot.running = running_;
    snapshot.action = action_;
    if (running_ && (train_step_base_ || ticked_[0] || options_.unit == Unit::kTrainStep)) {
      snapshot.train_step = label(Unit::kTrainStep);
    }
    if (!stages_.empty()) snapshot.stage = stages_.back().text;
    if (running_ && (options_.unit == Unit::kTrainStep || units_current_)) snapshot.unit_number = label(options_.unit);
    snapshot.units_seen = units_seen_;
    if (options_.schedule) snapshot.first_planned_unit = schedule::first_recorded(*options_.schedule);
    snapshot.starts_ignored = starts_ignored_;
    grant_quiet_steps();
  }
  snapshot.counts = results_->counts();
  snapshot.message = results_->message();
  return snapshot;
}

std::string Profiler::why_nothing(bool failed) const {
  const std::string_view unit = schedule::unit_name(options_.unit);
  const std::string after = failed ? " (an exception left the loop)" : "";
  if (!step_matched_) {
    return fmt::format("no train step of steps=[{}] was reached; the last one seen was {}{}", fmt::join(options_.steps, ", "),
                       label(Unit::kTrainStep), after);
  }
  if (!options_.schedule) return "no event happened between start and stop" + after;
  const auto first = schedule::first_recorded(*options_.schedule);
  if (!first) return fmt::format("the schedule {} records no unit", schedule::to_string(*options_.schedule));
  if (stages_used_ && scheduled_stages_ == 0 && options_.unit != Unit::kTrainStep) {
    return fmt::format("no stage that the schedule applies to began ({}){}",
                       options_.stages.empty() ? "none was begun as scheduled" : fmt::format("{}", fmt::join(options_.stages, ", ")), after);
  }
  if (units_seen_ == 0) {
    return fmt::format("step() was never called: 0 of {} units seen, and the first to record is {} {}{}; call step() at the end of each {}",
                       unit, unit, *first, after, unit);
  }
  return fmt::format("the loop ended too early: {} {} unit(s) seen{}, and the first to record is {} {}{}; record earlier or run longer",
                     units_seen_, unit, scheduled_stages_ > 1 ? fmt::format(" in {} stages", scheduled_stages_) : "", unit, *first, after);
}

void Profiler::log_plan() const {
  std::string what = "everything from start to stop";
  if (options_.schedule) {
    const auto first = schedule::first_recorded(*options_.schedule);
    const std::int64_t cycle = options_.schedule->wait + options_.schedule->warmup + options_.schedule->active;
    const auto windows = schedule::plan(*options_.schedule, first ? *first + 3 * cycle + 1 : 0);
    std::vector<std::string> parts;
    for (const auto& window : windows) {
      if (parts.size() == 3) break;
      parts.push_back(window.first == window.last ? fmt::format("{}", window.first) : fmt::format("{}-{}", window.first, window.last));
    }
    const bool more = windows.size() > 3 || (options_.schedule->repeat == 0 || options_.schedule->repeat > 3);
    what = fmt::format("{} {}{}", schedule::unit_name(options_.unit), fmt::join(parts, ", "), more ? ", ..." : "");
  }
  if (!options_.steps.empty()) what += fmt::format(" of train_step {}", fmt::join(options_.steps, ", "));
  if (!options_.stages.empty()) what += fmt::format(" in {}", fmt::join(options_.stages, ", "));
  base::log_line(fmt::format("{}will record {} ({}) into '{}'", options_.role.empty() ? "" : options_.role + ": ", what,
                             fmt::join(contents_.names, ", "), options_.out));
}

}  // namespace marey::session
