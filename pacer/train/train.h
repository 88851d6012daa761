// A whole training run, from a recipe to a finished or continued run folder: what programs call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/train/recipe.h"
#include "pacer/train/state_store.h"

namespace pacer::parallel {
class World;
}

namespace pacer::train {

struct TrainOptions {
  std::filesystem::path run;             // the run folder; an unfinished run in it is continued
  std::function<bool()> stop_requested;  // asked after every step; unset: never
  std::vector<std::string> command;      // for environment.json
  // States that the target computed when it wrote the rows, for recipes with features.kernels: decoding (Error{usage}
  // with others, whose bits differ). Rows without are computed; a run that is continued without the store ends with the
  // same bits.
  std::shared_ptr<StateStore> states;
  // Ranks that have met already, for recipes with a section `parallel`; null: those that the environment names.
  parallel::World* world = nullptr;
};

struct TrainResult {
  std::filesystem::path run;
  std::filesystem::path checkpoint;             // newest
  std::filesystem::path draft;                  // the one to use: best by validation tau, else the newest
  int64_t step = 0, steps = 0;                  // done, planned
  bool finished = false;                        // false: stopped on request, the same call continues
  std::optional<double> validation_loss;        // on held-out text, of a language model
  std::optional<double> first_loss, last_loss;  // of the first and the last line of metrics
  std::optional<double> validation_tau, best_tau;
  int64_t best_step = 0;
  int64_t rows = 0, tokens = 0, blocks = 0;  // trained on, over all continuations
  double coverage = 1;                       // share of the training answers inside the draft vocabulary
  double wall_s = 0, cpu_s = 0;              // of this call
  OrderedJson to_json() const;
};

// Starts the run, continues it from its newest complete checkpoint, or returns at once when it is finished. A run that
// was killed and continued ends with the same bits as one that was not.
//
// With a section `parallel` every rank calls it with the same recipe and folder, which all ranks reach; rank 0 writes,
// and all return the same result (but for their times). The run may be continued on another mesh with as many
// micro-batches in a step.
//
// Throws Error{usage}: another process in the folder, a recipe that differs from the one the run began with,
// divergence. Throws Error{data}: rows or target are not those the run began with. Throws Error{resources}: not enough
// memory or disk.
TrainResult train(const ResolvedRecipe& resolved, const TrainOptions& options);

// The recipe that the run in this folder began with. Throws Error{usage} when there is no run.
ResolvedRecipe recipe_of_run(const std::filesystem::path& run);

}  // namespace pacer::train
