// What a run decides when it begins or goes on, alike for drafts and language models, on one process and on many.
#pragma once

#include <filesystem>
#include <optional>

#include "pacer/device/runtime.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/plan.h"
#include "pacer/train/ranks.h"
#include "pacer/train/recipe.h"
#include "pacer/train/run_folder.h"

namespace pacer::train {

// All ranks call each of these together; what is read from the run folder is what rank 0 finds there.

// The plan of an earlier call in this folder.
std::optional<RunPlan> earlier_plan(const RunFolder& folder, Ranks& ranks);

// The checkpoint that the run goes on from.
std::optional<std::filesystem::path> newest_checkpoint(const CheckpointStore& checkpoints, Ranks& ranks);

// The threads that the run began with, else those of the recipe; one in exact mode. Throws Error{usage} when they are
// more than this process may use.
void use_threads(const std::optional<RunPlan>& earlier, const Recipe& recipe, device::Runtime& runtime);

// choose_f32_products() of plan.h with the choice of rank 0. In exact mode nothing is measured: another run, on another
// mesh, must come to the same choice.
void choose_f32_products(const std::optional<RunPlan>& earlier, const Recipe& recipe, Ranks& ranks, RunPlan& plan);

}  // namespace pacer::train
