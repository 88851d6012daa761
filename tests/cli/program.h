// The program as a person calls it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacer::cli {

struct Outcome {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, error;
};

// Runs the pacer of this build with these arguments; `environment` holds "NAME=value" to add or "NAME" to remove.
Outcome pacer(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

// The same, with a signal after so many seconds unless it has ended by then.
Outcome pacer_killed(const std::vector<std::string>& arguments, int signal, double seconds);

// The same with a limit on the size of every file it writes, as on a full disk. 0: no limit.
Outcome pacer_on_full_disk(const std::vector<std::string>& arguments, uint64_t file_bytes);

// The same with stdout going into this file; `out` is then empty.
Outcome pacer_into(const std::string& file, const std::vector<std::string>& arguments);

}  // namespace pacer::cli
