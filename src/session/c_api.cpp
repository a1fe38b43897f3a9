// include/marey/marey.h over the session. No exception and no abort leaves this file.

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "marey/marey.h"
#include "src/base/log.h"
#include "src/session/profiler.h"
#include "src/session/session.h"

/// The handle. After a fork the child's copy is inert: `generation` tells.
struct marey_profiler {
  std::unique_ptr<marey::session::Profiler> profiler;
  std::uint64_t generation = 0;
};

namespace {

using marey::Status;
using marey::schedule::Schedule;
using marey::schedule::Unit;
using marey::session::Profiler;
using marey::session::Session;

thread_local std::string t_last_error;
thread_local std::string t_status_stage;
thread_local std::string t_status_message;

int fail(const Status& status) {
  t_last_error = status.message();
  return static_cast<int>(status.code());
}

/// Runs a body that may allocate: running out of memory becomes a code, not an exception.
template <typename Body>
int guarded(Body body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    return fail(Status::internal(fmt::format("Marey failed: {}; profiling goes on without this call", error.what())));
  } catch (...) {
    return fail(Status::internal("Marey failed for an unknown reason; profiling goes on without this call"));
  }
}

Profiler* live(marey_profiler* handle) {
  if (handle == nullptr || handle->generation != Session::generation()) return nullptr;
  return handle->profiler.get();
}

bool valid_unit(int unit) {
  return unit >= MAREY_TRAIN_STEP && unit <= MAREY_MICRO_BATCH;
}

Schedule to_schedule(const marey_schedule& from) {
  return {from.skip_first, from.wait, from.warmup, from.active, from.repeat, from.skip_first_wait};
}

/// First of the environment variables that holds a number >= 0.
std::int64_t from_environment(std::initializer_list<const char*> names, std::int64_t otherwise) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text == nullptr || *text == '\0') continue;
    char* end = nullptr;
    const long long value = std::strtoll(text, &end, 10);
    if (*end == '\0' && value >= 0) return value;
    marey::base::log_once(name, fmt::format("{}='{}' is not a number from 0; it is ignored", name, text));
  }
  return otherwise;
}

std::string text_from_environment(std::initializer_list<const char*> names, const char* otherwise) {
  for (const char* name : names) {
    if (const char* text = std::getenv(name); text != nullptr && *text != '\0') return text;
  }
  return otherwise;
}

struct UserLog {
  std::mutex mutex;
  void (*sink)(void*, const char*, size_t) = nullptr;
  void* user = nullptr;
};
UserLog& user_log() {
  static auto* instance = new UserLog;
  return *instance;
}

void forward_log(void*, std::string_view line) {
  void (*sink)(void*, const char*, size_t) = nullptr;
  void* user = nullptr;
  {
    const std::lock_guard lock(user_log().mutex);
    sink = user_log().sink;
    user = user_log().user;
  }
  if (sink != nullptr) sink(user, line.data(), line.size());
}

void fill(const marey::session::SealedTrace& from, marey_window* out) {
  out->sequence = from.sequence;
  out->path = from.path.c_str();
  out->error = from.error.c_str();
  out->stage = from.stage.c_str();
  out->is_skeleton = from.is_skeleton ? 1 : 0;
  out->complete = from.complete ? 1 : 0;
  out->train_step = from.train_step.value_or(MAREY_UNKNOWN);
  out->unit = static_cast<marey_unit>(from.unit);
  out->first_unit = from.first_unit;
  out->last_unit = from.last_unit;
  out->recorded_units = from.recorded_units;
  out->planned_units = from.planned_units;
  out->events = from.events;
  out->lost = from.lost;
  out->bytes = from.bytes;
}

Status to_options(const marey_profiler_options& from, Profiler::Options* to) {
  if (from.size < sizeof(marey_profiler_options)) {
    return Status::invalid_argument(
        "marey_profiler_options.size is too small; set it to sizeof(marey_profiler_options)");
  }
  if (!valid_unit(from.unit)) {
    return Status::invalid_argument(
        fmt::format("unit {} is not known; use train_step, mini_batch or micro_batch", static_cast<int>(from.unit)));
  }
  to->unit = static_cast<Unit>(from.unit);
  if (from.schedule != nullptr) to->schedule = to_schedule(*from.schedule);
  if (from.role != nullptr) to->role = from.role;
  to->out = from.out != nullptr && *from.out != '\0' ? from.out : text_from_environment({"MAREY_OUT"}, "marey-traces");
  for (size_t i = 0; i < from.contents_count; ++i) to->contents.emplace_back(from.contents[i]);
  for (size_t i = 0; i < from.steps_count; ++i) to->steps.push_back(from.steps[i]);
  for (size_t i = 0; i < from.stages_count; ++i) to->stages.emplace_back(from.stages[i]);
  to->world_size = from.world_size != MAREY_UNKNOWN ? from.world_size : from_environment({"WORLD_SIZE"}, 1);
  to->rank = from.rank != MAREY_UNKNOWN ? from.rank : from_environment({"RANK"}, 0);
  if (from.world_size == MAREY_UNKNOWN && to->rank >= to->world_size) to->world_size = to->rank + 1;
  if (from.parallel != nullptr) to->parallel = from.parallel;
  to->job =
      from.job != nullptr ? from.job : text_from_environment({"SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "RAY_JOB_ID"}, "");
  to->skeleton = from.no_skeleton == 0;
  to->quiet = from.quiet != 0;
  return Status::ok();
}

}  // namespace

extern "C" {

const char* marey_version(void) {
  return MAREY_VERSION;
}
const char* marey_last_error(void) {
  return t_last_error.c_str();
}

void marey_set_log(void (*sink)(void* user, const char* line, size_t size), void* user) {
  {
    const std::lock_guard lock(user_log().mutex);
    user_log().sink = sink;
    user_log().user = user;
  }
  marey::base::set_log_sink(sink == nullptr ? nullptr : forward_log, nullptr);
}

int marey_profiler_create(const marey_profiler_options* options, marey_profiler** out) {
  return guarded([&] {
    if (options == nullptr || out == nullptr)
      return fail(Status::invalid_argument("marey_profiler_create: a null pointer was given"));
    *out = nullptr;
    Profiler::Options converted;
    if (const Status status = to_options(*options, &converted); !status.is_ok()) return fail(status);
    auto created = Profiler::create(Session::get(), std::move(converted));
    if (!created.is_ok()) return fail(created.status());
    auto handle = std::make_unique<marey_profiler>();
    handle->profiler = std::move(created).value();
    handle->generation = Session::generation();
    *out = handle.release();
    return 0;
  });
}

void marey_profiler_destroy(marey_profiler* profiler) {
  if (profiler == nullptr) return;
  (void)guarded([&] {
    if (Profiler* mine = live(profiler)) {
      mine->stop("destroyed");
      (void)mine->results().wait(10.0);
    } else {
      (void)profiler->profiler.release();  // a fork's copy: its mutexes may be held by threads that are not here
    }
    delete profiler;
    return 0;
  });
}

int marey_profiler_start(marey_profiler* profiler, int64_t train_step) {
  return guarded([&] {
    Profiler* mine = live(profiler);
    if (mine == nullptr)
      return fail(Status::unavailable("this profiler belongs to the process before the fork; make a new one"));
    if (train_step != MAREY_UNKNOWN && train_step < 0) {
      return fail(Status::invalid_argument(
          fmt::format("train_step {} is negative; train steps are numbered from 0", train_step)));
    }
    mine->start(train_step == MAREY_UNKNOWN ? std::nullopt : std::optional<std::int64_t>(train_step));
    return 0;
  });
}

void marey_profiler_step(marey_profiler* profiler) {
  if (Profiler* mine = live(profiler)) {
    (void)guarded([mine] {
      mine->step();
      return 0;
    });
  }
}

void marey_profiler_tick(marey_profiler* profiler, marey_unit unit) {
  Profiler* mine = live(profiler);
  if (mine == nullptr || !valid_unit(unit)) return;
  (void)guarded([=] {
    mine->tick(static_cast<Unit>(unit));
    return 0;
  });
}

void marey_profiler_end_units(marey_profiler* profiler) {
  if (Profiler* mine = live(profiler)) {
    (void)guarded([mine] {
      mine->end_units();
      return 0;
    });
  }
}

int marey_profiler_stop(marey_profiler* profiler, int failed) {
  return guarded([&] {
    if (Profiler* mine = live(profiler)) mine->stop(failed != 0 ? "exception" : "stop");
    return 0;
  });
}

void marey_profiler_stage_begin(marey_profiler* profiler, const char* name, int scheduled) {
  Profiler* mine = live(profiler);
  if (mine == nullptr || name == nullptr) return;
  (void)guarded([=] {
    mine->stage_begin(name, scheduled != 0);
    return 0;
  });
}

void marey_profiler_stage_end(marey_profiler* profiler, const char* name) {
  Profiler* mine = live(profiler);
  if (mine == nullptr || name == nullptr) return;
  (void)guarded([=] {
    mine->stage_end(name);
    return 0;
  });
}

int marey_profiler_wait(marey_profiler* profiler, double timeout_s) {
  return guarded([&] {
    Profiler* mine = live(profiler);
    if (mine == nullptr || mine->results().wait(timeout_s)) return 0;
    return fail(Status::exhausted(fmt::format("not every trace was sealed within {} s", timeout_s)));
  });
}

int marey_profiler_next_window(marey_profiler* profiler, uint64_t after, double timeout_s, marey_window* out) {
  return guarded([&] {
    Profiler* mine = live(profiler);
    if (mine == nullptr) return fail(Status::not_found("this profiler belongs to the process before the fork"));
    if (out == nullptr || out->size < sizeof(marey_window)) {
      return fail(Status::invalid_argument("marey_window.size is too small; set it to sizeof(marey_window)"));
    }
    const marey::session::SealedTrace* found = nullptr;
    const Status status = mine->results().next(
        after, timeout_s, [mine] { return mine->running(); }, &found);
    if (!status.is_ok()) return fail(status);
    fill(*found, out);
    return 0;
  });
}

int marey_profiler_status(marey_profiler* profiler, marey_status* out) {
  return guarded([&] {
    if (out == nullptr || out->size < sizeof(marey_status)) {
      return fail(Status::invalid_argument("marey_status.size is too small; set it to sizeof(marey_status)"));
    }
    Profiler* mine = live(profiler);
    if (mine == nullptr)
      return fail(Status::unavailable("this profiler belongs to the process before the fork; make a new one"));
    const Profiler::Snapshot snapshot = mine->snapshot();
    t_status_stage = snapshot.stage;
    t_status_message = snapshot.message;
    out->running = snapshot.running ? 1 : 0;
    out->action = static_cast<marey_action>(snapshot.action);
    out->train_step = snapshot.train_step.value_or(MAREY_UNKNOWN);
    out->stage = t_status_stage.c_str();
    out->unit_number = snapshot.unit_number.value_or(-1);
    out->units_seen = snapshot.units_seen;
    out->first_planned_unit = snapshot.first_planned_unit.value_or(-1);
    out->windows_open = snapshot.counts.open;
    out->windows_sealed = snapshot.counts.sealed;
    out->windows_failed = snapshot.counts.failed;
    out->events = snapshot.counts.events;
    out->lost = snapshot.counts.lost;
    out->starts_ignored = snapshot.starts_ignored;
    out->message = t_status_message.c_str();
    return 0;
  });
}

void marey_finish(double timeout_s) {
  (void)guarded([=] {
    Session::get().finish(timeout_s, "exit");
    return 0;
  });
}

int marey_schedule_validate(const marey_schedule* schedule) {
  return guarded([&] {
    if (schedule == nullptr || schedule->size < sizeof(marey_schedule)) {
      return fail(Status::invalid_argument("marey_schedule.size is too small; set it to sizeof(marey_schedule)"));
    }
    const Status status = marey::schedule::validate(to_schedule(*schedule));
    return status.is_ok() ? 0 : fail(status);
  });
}

marey_action marey_schedule_action(const marey_schedule* schedule, int64_t number) {
  if (schedule == nullptr) return MAREY_NONE;
  return static_cast<marey_action>(marey::schedule::action_of(to_schedule(*schedule), number));
}

int marey_register_source(const marey_source* source) {
  return guarded([&] {
    const Status status = marey::session::SourceSet::get().add(source);
    return status.is_ok() ? 0 : fail(status);
  });
}

void marey_source_unavailable(const char* name, const char* reason) {
  if (name == nullptr || reason == nullptr) return;
  (void)guarded([=] {
    marey::session::SourceSet::get().set_unavailable(name, reason);
    return 0;
  });
}

int marey_source_load(const char* path) {
  return guarded([&] {
    if (path == nullptr) return fail(Status::invalid_argument("marey_source_load: the path is null"));
    // Never unloaded: an observer's end callbacks may run after it was taken out.
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      const char* why = dlerror();
      return fail(Status::unavailable(
          fmt::format("cannot load source '{}': {}", path, why == nullptr ? "unknown reason" : why)));
    }
    auto* init = reinterpret_cast<int (*)(void)>(dlsym(library, "marey_source_init"));
    if (init == nullptr)
      return fail(Status::invalid_argument(
          fmt::format("'{}' is not a source of Marey's: it exports no marey_source_init", path)));
    const int code = init();
    if (code != 0 && t_last_error.empty())
      t_last_error = fmt::format("source '{}' refused to start (code {})", path, code);
    return code;
  });
}

}  // extern "C"
