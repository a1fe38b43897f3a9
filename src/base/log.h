#pragma once

#include <string_view>

namespace marey::base {

/// Receives each of Marey's own messages (one line, no newline). Called from any thread; must not call Marey back.
using LogSink = void (*)(void* user, std::string_view line);

/// Replaces the sink; null restores the default, which writes "marey: <line>\n" to stderr in one write(2).
void set_log_sink(LogSink sink, void* user);

/// The only place that library code prints from.
void log_line(std::string_view line);

/// Logs a line at most once per process for one key, so that a fault in a loop is told once.
void log_once(std::string_view key, std::string_view line);

}  // namespace marey::base
