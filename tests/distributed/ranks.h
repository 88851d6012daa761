// Several ranks inside of one test: processes that are forked, meet in a file store and must all end well.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "pacer/parallel/world.h"

namespace pacer::parallel {

struct RankOutcome {
  int exit_code = -1;  // 0: its body returned and no expectation failed; 128 + signal when one ended it
  std::string error;   // what its body threw, else ""
  std::string hint;    // of that
  double seconds = 0;
};

struct RankSetup {
  std::function<void(LaunchEnvironment&)> environment{};  // changes what a rank is told
  std::chrono::milliseconds stall{0};                     // WorldOptions::stall
  std::string output{};  // prefix of the files that take the ranks' stderr; "": this one's
  std::string device{};  // where ranks compute, each on a device of its own; "": host memory, and no device is opened
  int64_t devices = 0;   // of the simulated NPU; 0: as many as there are ranks
  bool through_host = false;  // WorldOptions::through_host
};

// Runs `body` in `count` processes. A rank whose expectations fail prints them and counts as failed. Ranks that are
// still there after `limit` are killed (and fail). This process must not have used threads of LibTorch before.
std::vector<RankOutcome> outcomes_of_ranks(int64_t count, const std::function<void(World&)>& body,
                                           std::chrono::milliseconds timeout = std::chrono::seconds(60),
                                           std::chrono::seconds limit = std::chrono::seconds(120),
                                           const RankSetup& setup = {});

// The same, expecting every rank to end well.
void run_ranks(int64_t count, const std::function<void(World&)>& body, const RankSetup& setup = {});

}  // namespace pacer::parallel
