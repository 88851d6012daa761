// Starts the ranks of a training on this machine and answers for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacer::parallel {

struct LaunchOptions {
  int64_t processes = 1;
  double grace_s = 3;  // after one rank failed, the others may end by themselves and say what they saw
  double kill_s = 10;  // after SIGTERM
};

// The rank that failed first; one that only lost the others counts when no rank failed in another way.
struct LaunchResult {
  int exit_code = 0;  // of that rank, 128 + signal when a signal ended it; 0: none failed
  int64_t failed_rank = -1;
  std::string message;  // what that rank left in its error file, "" when it left nothing
  int signal = 0;       // that this process was asked to end with; passed on to the ranks
};

// Runs `command` `processes` times with RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT,
// TORCHELASTIC_ERROR_FILE and the rest of torchrun's environment, and with one OpenMP thread unless OMP_NUM_THREADS
// says otherwise. Serves their store. Returns when all have ended and are reaped. A rank also ends when this process
// does, whatever ended it. Blocks SIGCHLD, SIGINT and SIGTERM in the calling thread while it runs.
// Throws Error{usage} for less than one process or no command, Error{resources} when a process cannot be started.
LaunchResult launch(const std::vector<std::string>& command, const LaunchOptions& options);

}  // namespace pacer::parallel
