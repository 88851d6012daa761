// environment.json: on what a run was started, for a person who wonders later.
#pragma once

#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/device/runtime.h"

namespace pacer::train {

// Versions, processor, memory, device, threads, kernels, the OpenMP and tensor library settings of the environment, the
// command line and the time.
OrderedJson environment(const device::Runtime& runtime, const std::vector<std::string>& command);

}  // namespace pacer::train
