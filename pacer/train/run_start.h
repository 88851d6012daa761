// What a run decides when it begins or goes on, alike for drafts and language models, on one process and on many.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "pacer/base/json.h"
#include "pacer/device/runtime.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/memory.h"
#include "pacer/train/metrics.h"
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

// LibTorch's random numbers of host and device: as in the checkpoint, else from the recipe's seed and this rank's share
// of parallel.generator_stride.
void start_generator(const std::optional<std::filesystem::path>& checkpoint, const Recipe& recipe, Ranks& ranks);

// What somebody finds in a run folder. The recipe and the plan stay as they were when the run began; the others are of
// the last start.
struct RunFiles {
  std::string recipe;           // resolved, YAML
  std::optional<RunPlan> plan;  // of a run that begins, else none
  std::string parameters;       // which update takes which parameter
  OrderedJson environment;
};
void write_run_files(const RunFolder& folder, Ranks& ranks, const RunFiles& files);

// Rank 0's log of the run, without what comes after `step`, where the run goes on; null on the others.
std::unique_ptr<MetricsLog> open_metrics(const RunFolder& folder, Ranks& ranks, const Recipe& recipe,
                                         std::optional<int64_t> step);

// Runs the steps. A device's memory that ended becomes the Error of out_of_memory(), and what a device says when
// another rank is gone, which may be at any later call, Error{communication} with where the other ranks are.
void explaining_failures(Ranks& ranks, const MemoryEstimate& estimate, const std::function<void()>& steps);

}  // namespace pacer::train
