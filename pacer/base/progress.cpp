#include "pacer/base/progress.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "pacer/base/clocks.h"
#include "pacer/base/logging.h"
#include "pacer/base/numbers.h"
#include "pacer/base/terminal.h"

namespace pacer {
namespace {

constexpr double kBarSeconds = 0.1;
constexpr const char* kEraseLine = "\r\033[2K";

size_t column_count(std::string_view utf8) {
  return static_cast<size_t>(
      std::count_if(utf8.begin(), utf8.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string first_columns(std::string_view utf8, size_t columns) {
  size_t at = 0;
  for (size_t seen = 0; at < utf8.size(); ++at) {
    if ((static_cast<unsigned char>(utf8[at]) & 0xC0) != 0x80 && ++seen > columns) break;
  }
  return std::string(utf8.substr(0, at));
}

void write_stderr(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

}  // namespace

Progress::Progress(std::string title, uint64_t total, ProgressOptions options, uint64_t done_before)
    : title_(std::move(title)),
      total_(total),
      done_(done_before),
      done_before_(done_before),
      options_(std::move(options)),
      bar_(options_.bar.value_or(is_terminal(StandardStream::error) && log_level() <= LogLevel::info)) {
  if (!options_.now) options_.now = wall_seconds;
  if (!options_.write_plain) options_.write_plain = log_info;
  if (!options_.write_bar) options_.write_bar = write_stderr;
  start_ = last_shown_ = options_.now();
  if (bar_) {
    set_status_line({.clear = [this] { erase(); }, .draw = [this] { draw(); }});
    with_log_lock([this] { draw(); });
  }
}

Progress::~Progress() {
  if (!bar_ || finished_) return;
  with_log_lock([this] { erase(); });
  clear_status_line();
}

double Progress::remaining_seconds() const {
  const double elapsed = options_.now() - start_;
  if (total_ == 0 || done_ <= done_before_ || elapsed <= 0) return -1;
  return elapsed * static_cast<double>(total_ - std::min(done_, total_)) / static_cast<double>(done_ - done_before_);
}

std::string Progress::plain_line() const {
  std::string line = title_ + ": " + format_count(static_cast<int64_t>(done_));
  if (total_ > 0) line += " of " + format_count(static_cast<int64_t>(total_));
  line += " " + options_.unit;
  if (total_ > 0) line += " (" + format_percent(static_cast<double>(done_) / static_cast<double>(total_)) + ")";
  if (!note_.empty()) line += ", " + note_;
  if (const double left = remaining_seconds(); left >= 0) line += ", " + format_duration(left) + " left";
  return line;
}

std::string Progress::bar_line() const {
  const int given = options_.columns > 0 ? options_.columns : terminal_columns(StandardStream::error);
  const size_t columns = static_cast<size_t>(std::max(given, 20)) - 1;  // a full last column would wrap
  std::string right = " " + format_count(static_cast<int64_t>(done_));
  if (total_ > 0) right += "/" + format_count(static_cast<int64_t>(total_));
  right += " " + options_.unit;
  if (const double left = remaining_seconds(); left >= 0) right += "  " + format_duration(left) + " left";
  if (!note_.empty()) right += "  " + note_;

  const std::string left = title_ + " ";
  const size_t used = column_count(left) + column_count(right);
  if (total_ == 0 || used + 6 > columns) return first_columns(left + right, columns);
  // Eighths of a column, so that slow work is seen to move.
  const size_t width = std::min<size_t>(columns - used, 30);
  const double fraction = std::min(1.0, static_cast<double>(done_) / static_cast<double>(total_));
  const auto eighths = static_cast<size_t>(fraction * static_cast<double>(width) * 8);
  static constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string bar;
  for (size_t i = 0; i < eighths / 8; ++i) bar += "█";
  bar += kParts[eighths % 8];
  const size_t drawn = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  for (size_t i = drawn; i < width; ++i) bar += "·";
  return left + bar + right;
}

void Progress::draw() { options_.write_bar(kEraseLine + bar_line()); }

void Progress::erase() { options_.write_bar(kEraseLine); }

void Progress::update(uint64_t done, std::string_view note) {
  const double now = options_.now();
  const bool due = now - last_shown_ >= (bar_ ? kBarSeconds : options_.plain_seconds);
  if (!bar_) {
    done_ = done;
    note_ = note;
    if (due) options_.write_plain(plain_line());
  } else {
    // Under the lock, because another thread's message has the bar drawn again.
    with_log_lock([&] {
      done_ = done;
      note_ = note;
      if (due) draw();
    });
  }
  if (due) last_shown_ = now;
}

void Progress::finish(std::string_view note) {
  if (finished_) return;
  finished_ = true;
  if (bar_) {
    with_log_lock([this] { erase(); });
    clear_status_line();
  }
  std::string line = title_ + ": " + format_count(static_cast<int64_t>(done_ - done_before_)) + " " + options_.unit +
                     " in " + format_duration(options_.now() - start_);
  if (!note.empty()) line += ", " + std::string(note);
  options_.write_plain(line);
}

}  // namespace pacer
