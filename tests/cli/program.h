// The program as a person calls it.
#pragma once

#include <string>
#include <vector>

namespace pacer::cli {

struct Outcome {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, error;
};

// Runs the pacer of this build with these arguments; `environment` holds "NAME=value" to add or "NAME" to remove.
Outcome pacer(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

}  // namespace pacer::cli
