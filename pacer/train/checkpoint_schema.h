// What the manifest of a checkpoint says that it is.
#pragma once

#include <cstdint>

namespace pacer::train {

constexpr const char* kCheckpointSchema = "pacer.train-checkpoint";
constexpr int64_t kCheckpointVersion = 1;

}  // namespace pacer::train
