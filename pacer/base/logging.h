// Notes to a person on stderr, one line each; results go to stdout and never through here.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace pacer {

enum class LogLevel { debug, info, warning, off };

// Thread-safe. A line end inside `message` becomes a space, so one call is one line; warnings begin with "warning: ".
void log(LogLevel level, std::string_view message);
inline void log_debug(std::string_view message) { log(LogLevel::debug, message); }
inline void log_info(std::string_view message) { log(LogLevel::info, message); }
inline void log_warning(std::string_view message) { log(LogLevel::warning, message); }

// Messages below the level are dropped; info at start.
void set_log_level(LogLevel level);
LogLevel log_level();

// Where lines go instead of stderr; an empty function restores stderr. For tests and for programs that embed Pacer.
// The sink is called under the lock of the log: it must not log.
using LogSink = std::function<void(LogLevel level, std::string_view line)>;
void set_log_sink(LogSink sink);

// A progress bar is one line without an end. While one is shown, log() clears it first and has it drawn again after.
// The log calls both under its lock. Used by pacer/base/progress.
struct StatusLine {
  std::function<void()> clear;
  std::function<void()> draw;
};
void set_status_line(StatusLine status);
void clear_status_line();
// Runs `write`, which writes to stderr, under the lock of the log.
void with_log_lock(const std::function<void()>& write);

}  // namespace pacer
