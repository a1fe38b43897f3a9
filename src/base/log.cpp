#include "src/base/log.h"

#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <set>
#include <string>

namespace marey::base {
namespace {

struct SinkState {
  std::mutex mutex;
  LogSink sink = nullptr;
  void* user = nullptr;
  std::set<std::string, std::less<>> told;
};

SinkState& state() {
  // Never destroyed: messages may come from atexit handlers and detached threads.
  static auto* instance = new SinkState;
  return *instance;
}

void write_stderr(std::string_view line) {
  std::string text = "marey: ";
  text.append(line);
  text.push_back('\n');
  std::string_view rest = text;
  while (!rest.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // a closed stderr is not our business
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace

void set_log_sink(LogSink sink, void* user) {
  const std::lock_guard lock(state().mutex);
  state().sink = sink;
  state().user = user;
}

void log_line(std::string_view line) {
  LogSink sink = nullptr;
  void* user = nullptr;
  {
    const std::lock_guard lock(state().mutex);
    sink = state().sink;
    user = state().user;
  }
  // Called without the lock: a sink may take locks of its own (Python's GIL).
  if (sink != nullptr) {
    sink(user, line);
  } else {
    write_stderr(line);
  }
}

void log_once(std::string_view key, std::string_view line) {
  {
    const std::lock_guard lock(state().mutex);
    if (!state().told.emplace(key).second) return;
  }
  log_line(line);
}

}  // namespace marey::base
