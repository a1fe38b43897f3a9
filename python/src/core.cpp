// Glue between Python and the C ABI: converts, releases the GIL around whatever may wait, and does nothing else.

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "hot_types.h"
#include "marey/marey.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

/// Raises the Python exception that fits a code of the C ABI.
void check(int code) {
  if (code == MAREY_OK) return;
  const std::string message = marey_last_error();
  switch (code) {
    case MAREY_INVALID_ARGUMENT:
      throw nb::value_error(message.c_str());
    case MAREY_NOT_FOUND:
    case MAREY_IO:
      PyErr_SetString(PyExc_OSError, message.c_str());
      throw nb::python_error();
    default:
      throw std::runtime_error(message);  // RuntimeError
  }
}

using Numbers = std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t, std::int64_t>;

marey_schedule to_schedule(const Numbers& n) {
  return {sizeof(marey_schedule), std::get<0>(n), std::get<1>(n), std::get<2>(n),
          std::get<3>(n),         std::get<4>(n), std::get<5>(n)};
}

/// The interpreter is about to go: from now on nobody gives the GIL away. A thread that came back for it after that
/// would be killed in the middle of C++. Written with the GIL held.
std::atomic<bool> g_closing{false};
/// Threads that are without the GIL because of us, or on their way back to it. Grows with the GIL held.
std::atomic<int> g_without_gil{0};

/// Gives the GIL away for its lifetime, unless the interpreter is about to go.
class WithoutGil {
 public:
  WithoutGil() {
    ++g_without_gil;
    if (!g_closing) state_ = PyEval_SaveThread();
  }
  ~WithoutGil() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
    --g_without_gil;
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_ = nullptr;
};

/// A time limit (negative: none) that is waited for in slices, to look at signals and at the end of the interpreter.
class Deadline {
 public:
  explicit Deadline(double timeout_s) : limited_(timeout_s >= 0 && timeout_s < 1e9) {
    if (limited_) at_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(timeout_s));
  }
  [[nodiscard]] bool over() const { return limited_ && Clock::now() >= at_; }
  [[nodiscard]] double slice_s() const {
    constexpr double kSliceS = 0.1;
    return limited_ ? std::clamp(std::chrono::duration<double>(at_ - Clock::now()).count(), 0.0, kSliceS) : kSliceS;
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool limited_;
  Clock::time_point at_ = Clock::now();
};

/// Ends every lease and waits for the files.
void finish(double timeout_s) {
  const WithoutGil released;
  marey_finish(timeout_s);
}

/// Sends every waiting thread home; whoever calls after this keeps the GIL.
void close_waiters() {
  g_closing = true;
  const nb::gil_scoped_release released;
  const Deadline deadline(10.0);
  while (g_without_gil.load() > 0 && !deadline.over()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

class Profiler {
 public:
  Profiler(const std::optional<Numbers>& schedule, int unit, const std::string& role,
           const std::optional<std::string>& out, const std::vector<std::string>& contents,
           const std::vector<std::int64_t>& steps, const std::vector<std::string>& stages,
           std::optional<std::int64_t> rank, std::optional<std::int64_t> world_size,
           const std::optional<std::string>& parallel, bool skeleton, bool quiet) {
    marey_schedule numbers{};
    if (schedule) numbers = to_schedule(*schedule);
    std::vector<const char*> content_words;
    for (const auto& word : contents) content_words.push_back(word.c_str());
    std::vector<const char*> stage_names;
    for (const auto& name : stages) stage_names.push_back(name.c_str());
    marey_profiler_options options{};
    options.size = sizeof options;
    options.schedule = schedule ? &numbers : nullptr;
    options.unit = static_cast<marey_unit>(unit);
    options.role = role.c_str();
    options.out = out ? out->c_str() : nullptr;
    options.contents = content_words.data();
    options.contents_count = content_words.size();
    options.steps = steps.data();
    options.steps_count = steps.size();
    options.stages = stage_names.data();
    options.stages_count = stage_names.size();
    options.rank = rank.value_or(MAREY_UNKNOWN);
    options.world_size = world_size.value_or(MAREY_UNKNOWN);
    options.parallel = parallel ? parallel->c_str() : nullptr;
    options.no_skeleton = skeleton ? 0 : 1;
    options.quiet = quiet ? 1 : 0;
    int code = 0;
    {
      const WithoutGil released;  // touches the disk
      code = marey_profiler_create(&options, &handle_);
    }
    check(code);
  }
  ~Profiler() {
    const WithoutGil released;
    marey_profiler_destroy(handle_);
  }
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  void start(std::optional<std::int64_t> train_step) {
    int code = 0;
    {
      const WithoutGil released;  // may arm sources, whose libraries take locks
      code = marey_profiler_start(handle_, train_step.value_or(MAREY_UNKNOWN));
    }
    check(code);
  }
  void step() { marey_profiler_step(handle_); }
  void tick(int unit) { marey_profiler_tick(handle_, static_cast<marey_unit>(unit)); }
  void end_units() { marey_profiler_end_units(handle_); }
  void stop(bool failed) {
    const WithoutGil released;
    (void)marey_profiler_stop(handle_, failed ? 1 : 0);
  }
  void stage_begin(const std::string& name, bool scheduled) {
    marey_profiler_stage_begin(handle_, name.c_str(), scheduled ? 1 : 0);
  }
  void stage_end(const std::string& name) { marey_profiler_stage_end(handle_, name.c_str()); }
  /// True: all is sealed. False: the time ran out. Signals are handled while it waits, so Ctrl-C works.
  bool wait(double timeout_s) {
    const Deadline deadline(timeout_s);
    while (true) {
      int code = 0;
      {
        const WithoutGil released;
        code = marey_profiler_wait(handle_, deadline.slice_s());
      }
      if (code == MAREY_OK) return true;
      if (deadline.over() || g_closing.load()) return false;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
    }
  }

  /// (True, window as a dict); (True, None) when the time ran out; (False, None) when none can come any more.
  nb::tuple next_window(std::uint64_t after, double timeout_s) {
    if (g_closing) return nb::make_tuple(true, nb::none());
    const Deadline deadline(timeout_s);
    marey_window window{};
    window.size = sizeof window;
    int code = 0;
    {
      // The GIL stays away until there is something to tell: a helper thread that only waits must not disturb training.
      const WithoutGil released;
      do {
        code = marey_profiler_next_window(handle_, after, deadline.slice_s(), &window);
      } while (code == MAREY_EXHAUSTED && !deadline.over() && !g_closing.load());
    }
    if (code == MAREY_NOT_FOUND) return nb::make_tuple(false, nb::none());
    if (code == MAREY_EXHAUSTED) return nb::make_tuple(true, nb::none());
    check(code);
    nb::dict result;
    result["sequence"] = window.sequence;
    result["path"] = window.path;
    result["error"] = window.error;
    result["stage"] = window.stage;
    result["is_skeleton"] = window.is_skeleton != 0;
    result["complete"] = window.complete != 0;
    result["train_step"] = optional(window.train_step);
    result["unit"] = static_cast<int>(window.unit);
    result["first_unit"] = window.first_unit;
    result["last_unit"] = window.last_unit;
    result["recorded_units"] = window.recorded_units;
    result["planned_units"] = window.planned_units;
    result["events"] = window.events;
    result["lost"] = window.lost;
    result["bytes"] = window.bytes;
    return nb::make_tuple(true, result);
  }

  nb::dict status() {
    marey_status status{};
    status.size = sizeof status;
    check(marey_profiler_status(handle_, &status));
    nb::dict result;
    result["running"] = status.running != 0;
    result["action"] = static_cast<int>(status.action);
    result["train_step"] = optional(status.train_step);
    result["stage"] = status.stage;
    result["unit_number"] = status.unit_number < 0 ? nb::object(nb::none()) : nb::int_(status.unit_number);
    result["units_seen"] = status.units_seen;
    result["first_planned_unit"] =
        status.first_planned_unit < 0 ? nb::object(nb::none()) : nb::int_(status.first_planned_unit);
    result["windows_open"] = status.windows_open;
    result["windows_sealed"] = status.windows_sealed;
    result["windows_failed"] = status.windows_failed;
    result["events"] = status.events;
    result["lost"] = status.lost;
    result["starts_ignored"] = status.starts_ignored;
    result["message"] = status.message;
    return result;
  }

 private:
  static nb::object optional(std::int64_t value) {
    return value == MAREY_UNKNOWN ? nb::object(nb::none()) : nb::int_(value);
  }
  marey_profiler* handle_ = nullptr;
};

}  // namespace

NB_MODULE(_core, module) {
  // A profiler that a daemon thread or a fork's child still holds at the end is no news for the program's stderr.
  nb::set_leak_warnings(false);
  // In a fork's child the other threads are not there, and never come back.
  pthread_atfork(nullptr, nullptr, [] { g_without_gil = 0; });
  module.attr("__version__") = marey_version();
  nb::class_<Profiler>(module, "Profiler")
      .def(nb::init<const std::optional<Numbers>&, int, const std::string&, const std::optional<std::string>&,
                    const std::vector<std::string>&, const std::vector<std::int64_t>&, const std::vector<std::string>&,
                    std::optional<std::int64_t>, std::optional<std::int64_t>, const std::optional<std::string>&, bool,
                    bool>(),
           "schedule"_a.none(), "unit"_a, "role"_a, "out"_a.none(), "contents"_a, "steps"_a, "stages"_a,
           "rank"_a.none(), "world_size"_a.none(), "parallel"_a.none(), "skeleton"_a, "quiet"_a)
      .def("start", &Profiler::start, "train_step"_a.none())
      .def("step", &Profiler::step)
      .def("tick", &Profiler::tick, "unit"_a)
      .def("end_units", &Profiler::end_units)
      .def("stop", &Profiler::stop, "failed"_a)
      .def("stage_begin", &Profiler::stage_begin, "name"_a, "scheduled"_a)
      .def("stage_end", &Profiler::stage_end, "name"_a)
      .def("wait", &Profiler::wait, "timeout_s"_a)
      .def("next_window", &Profiler::next_window, "after"_a, "timeout_s"_a)
      .def("status", &Profiler::status);
  module.def("finish", &finish, "timeout_s"_a);
  module.def("close_waiters", &close_waiters);
  module.def(
      "schedule_validate",
      [](const Numbers& numbers) {
        const marey_schedule schedule = to_schedule(numbers);
        check(marey_schedule_validate(&schedule));
      },
      "numbers"_a);
  module.def(
      "schedule_action",
      [](const Numbers& numbers, std::int64_t number) {
        const marey_schedule schedule = to_schedule(numbers);
        return static_cast<int>(marey_schedule_action(&schedule, number));
      },
      "numbers"_a, "number"_a);
  module.def("enabled", [] { return marey_enabled() != 0; });
  module.def(
      "source_load",
      [](const std::string& path) {
        int code = 0;
        {
          const WithoutGil released;
          code = marey_source_load(path.c_str());
        }
        check(code);
      },
      "path"_a);
  module.def(
      "source_unavailable",
      [](const std::string& name, const std::string& reason) {
        marey_source_unavailable(name.c_str(), reason.c_str());
      },
      "name"_a, "reason"_a);
  if (!add_range_type(module.ptr()) || !add_unit_iterator_type(module.ptr())) throw nb::python_error();
}
