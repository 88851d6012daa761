// A program run to its end, for what might not survive its process.
#pragma once

#include <string>
#include <vector>

namespace pacer::device {

struct Ended {
  std::string out, error;  // its stdout, and the last line of its stderr
  int exit_code = 0;       // of an end by itself
  int signal = 0;          // that ended it; 0: none
};

// command: the program's path first; no shell. Killed after a minute: a device that hangs must not hang the caller.
// Throws Error{resources} when it cannot be started.
Ended run_child(const std::vector<std::string>& command);

}  // namespace pacer::device
