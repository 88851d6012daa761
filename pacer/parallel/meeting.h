// How the ranks of one start find each other in a store that may still hold what an earlier start left there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "pacer/parallel/launch_environment.h"

namespace pacer::parallel {

// A name for this start that every rank returns and that no earlier start had: whatever stands under it is of these
// processes. Each rank leaves a random word of its own; rank 0 writes the roll of all of them and rewrites it until
// every rank has found its own word there. So what dead ranks left is never taken for somebody who is there, and ranks
// need not agree on how often they were started before.
// Throws Error{communication} that names the ranks that did not come within the time-out.
std::string meet(c10d::Store& store, int64_t rank, int64_t world, std::chrono::milliseconds timeout);

// How long a rank tries to reach the store: a launcher that says that it serves one has done so before it started the
// ranks, so that is 30 s at most; else until rank 0 has come so far, the time-out.
std::chrono::milliseconds patience_with_store(const LaunchEnvironment& environment, std::chrono::milliseconds timeout);

}  // namespace pacer::parallel
