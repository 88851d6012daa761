// What `pacer plan` says about a training of these ranks, with rates that they measured right now.
#pragma once

#include "pacer/bench/dist_training.h"

namespace pacer::bench {

// The same sizes with the rates of this machine while all ranks use it at once: by wall seconds of the slowest rank,
// and by CPU seconds of a rank, which are what a step takes where each rank has a core for itself.
struct MeasuredInputs {
  parallel::PredictionInput wall, cpu;
};
MeasuredInputs measure_rates(parallel::World& world, DistTraining& training, at::ScalarType storage,
                             const parallel::PredictionInput& sizes);

}  // namespace pacer::bench
