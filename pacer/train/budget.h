// The measured warm-up that turns a time budget into a number of steps.
#pragma once

#include "pacer/base/clocks.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/plan.h"
#include "pacer/train/trainer.h"

namespace pacer::train {

// Runs one checkpoint of step 0, the first windows and one validation, and says what each costs on the clock of the
// recipe; of several ranks, which call this together, on that of rank 0. since: when the run began. Leaves weights and
// moments as they were: one process updates nothing, ranks go back to the checkpoint.
Measured measure(Workbench& bench, Ranks& ranks, bool features_kept, CheckpointStore& checkpoints,
                 const Stopwatch& since);

}  // namespace pacer::train
