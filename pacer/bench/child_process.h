// A program run once: its output, its end, and what it took.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace pacer::bench {

struct Ended {
  std::string out;               // its stdout; its stderr is this process's
  int exit_code = 0;             // of an end by itself
  int signal = 0;                // that ended it, 0: none
  bool timed_out = false;        // and was therefore killed
  double wall_s = 0, cpu_s = 0;  // user and system time, its children included
  double first_output_s = 0;     // wall time until its first byte on stdout
  double peak_rss_mb = 0;        // 10^6 bytes
};

// arguments: the program's path first. environment: "NAME=value" to set or "NAME" to remove. timeout_s <= 0: none.
// Throws Error{resources} when it cannot be started.
Ended run_program(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                  double timeout_s);

}  // namespace pacer::bench
