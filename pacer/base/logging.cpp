#include "pacer/base/logging.h"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <utility>

#include "pacer/base/terminal.h"

namespace pacer {
namespace {

std::atomic<LogLevel> current_level{LogLevel::info};

struct State {
  std::mutex mutex;
  LogSink sink;
  StatusLine status;
};

// Never destroyed: a thread may still log while the process exits.
State& state() {
  static State* const value = new State;
  return *value;
}

std::string one_line(LogLevel level, std::string_view message) {
  std::string line = level == LogLevel::warning ? "warning: " : "";
  for (const char c : message) line += c == '\n' || c == '\r' ? ' ' : c;
  return line;
}

void write_stderr(LogLevel level, const std::string& line) {
  static const bool colour = has_colour(StandardStream::error);
  std::string text = line;
  if (level == LogLevel::warning) text = styled("warning:", Style::yellow, colour) + line.substr(8);
  if (level == LogLevel::debug) text = styled(line, Style::dim, colour);
  std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
}

}  // namespace

void log(LogLevel level, std::string_view message) {
  if (level < current_level.load(std::memory_order_relaxed) || level == LogLevel::off) return;
  const std::string line = one_line(level, message);
  const std::lock_guard lock(state().mutex);
  if (state().sink) {
    state().sink(level, line);
    return;
  }
  if (state().status.clear) state().status.clear();
  write_stderr(level, line);
  if (state().status.draw) state().status.draw();
}

void set_log_level(LogLevel level) { current_level = level; }

LogLevel log_level() { return current_level; }

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(state().mutex);
  state().sink = std::move(sink);
}

void set_status_line(StatusLine status) {
  const std::lock_guard lock(state().mutex);
  state().status = std::move(status);
}

void clear_status_line() { set_status_line({}); }

void with_log_lock(const std::function<void()>& write) {
  const std::lock_guard lock(state().mutex);
  write();
}

}  // namespace pacer
