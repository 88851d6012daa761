// How far a long piece of work has come: a bar on a terminal, a plain line now and then elsewhere.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace pacer {

struct ProgressOptions {
  std::string unit = "steps";
  std::optional<bool> bar{};                            // unset: a bar when stderr is a terminal and the log shows info
  int columns = 0;                                      // 0: of the terminal
  double plain_seconds = 10;                            // without a bar: at most one line in this time
  std::function<double()> now{};                        // seconds; unset: wall clock
  std::function<void(std::string_view)> write_plain{};  // unset: log_info
  std::function<void(std::string_view)> write_bar{};    // unset: stderr
};

// One at a time per process; update from one thread.
class Progress {
 public:
  // total: how much there is to do; 0 when that is not known. done_before: what an earlier run did; not counted for
  // speed.
  Progress(std::string title, uint64_t total, ProgressOptions options = {}, uint64_t done_before = 0);
  ~Progress();  // takes the bar away when finish() was not reached
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // note: what changes, such as "loss 1.23". Cheap: draws at most ten times a second.
  void update(uint64_t done, std::string_view note = {});

  // Leaves one line "title: 266 steps in 1 min 05 s, note" behind.
  void finish(std::string_view note = {});

 private:
  std::string bar_line() const;
  std::string plain_line() const;
  double remaining_seconds() const;  // negative while unknown
  void draw();
  void erase();

  std::string title_, note_;
  uint64_t total_, done_, done_before_;
  ProgressOptions options_;
  bool bar_;
  double start_, last_shown_;
  bool finished_ = false;
};

}  // namespace pacer
