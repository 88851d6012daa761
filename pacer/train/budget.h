// The measured warm-up that turns a time budget into a number of steps.
#pragma once

#include "pacer/base/clocks.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/plan.h"
#include "pacer/train/trainer.h"

namespace pacer::train {

// Runs the first windows without updating anything, one validation and one checkpoint of step 0, and says what each
// costs on the clock of the recipe. since: when the run began. Leaves weights and moments as they were.
Measured measure(Workbench& bench, bool features_kept, CheckpointStore& checkpoints, const Stopwatch& since);

}  // namespace pacer::train
