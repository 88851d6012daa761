// Training runs on several ranks inside of a test, and what they leave behind.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "pacer/base/json.h"
#include "pacer/parallel/world.h"
#include "pacer/train/recipe.h"
#include "pacer/train/train.h"
#include "tests/distributed/ranks.h"

namespace pacer::train {

// 20 rows to train on, one a micro-batch and four a step; one in three has a single slot to learn. Muon, AdamW and
// sharded AdamW all have parameters.
Recipe uneven_draft_recipe(const std::filesystem::path& folder);

// A language model of two layers over text that it can learn, two rows a micro-batch.
Recipe small_language_model_recipe(const std::filesystem::path& folder);

// Each rank on a device of its own, when the recipe names one.
parallel::RankSetup on_device_of(const Recipe& recipe);

// The recipe on a mesh, with `leaves` micro-batches in a step of all ranks together.
Recipe on(Recipe recipe, int64_t replicate, int64_t shard, int64_t leaves = 4);

// stop_after: the last rank, and no other, is asked to stop after so many steps.
TrainResult run_on(parallel::World& world, const Recipe& recipe, const std::filesystem::path& folder,
                   int64_t stop_after = 0);

// The same as processes of their own; expects each to end well.
void run_on_ranks(const Recipe& recipe, const std::filesystem::path& folder, int64_t stop_after = 0);

// One process and a recipe without a section `parallel`.
void run_alone(const Recipe& recipe, const std::filesystem::path& folder);

// All that a run leaves behind and that does not depend on time: tensors by name, state, lines of metrics.
struct Remains {
  std::map<std::string, at::Tensor> tensors;
  std::string state, metrics;
  Json counters;
};
Remains checkpoint_remains(const std::filesystem::path& checkpoint);
Remains remains_of(const std::filesystem::path& run);
void expect_same(const Remains& a, const Remains& b);

// Expects the weights of two runs to be close.
void expect_close_weights(const std::filesystem::path& expected, const std::filesystem::path& found, double absolute,
                          double relative);

}  // namespace pacer::train
