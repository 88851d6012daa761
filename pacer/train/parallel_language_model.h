// A whole language model that many ranks train together: step, validation and checkpoint as calls that all ranks make.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pacer/parallel/engine.h"
#include "pacer/target/autograd_forward.h"
#include "pacer/train/engine_setup.h"
#include "pacer/train/language_model.h"
#include "pacer/train/ranks.h"
#include "pacer/train/recipe.h"
#include "pacer/train/sample_order.h"
#include "pacer/train/state.h"

namespace pacer::train {

// The engine runs the model in segments: the embedding, each layer, norm and head with the loss. So with
// parallel.free_weights a rank holds the whole weights of two of them at a time.
class ParallelLanguageModel {
 public:
  // The model's weights become those of rank 0. The references must outlive the object.
  ParallelLanguageModel(const Recipe& recipe, Ranks& ranks, LanguageModel& model);

  struct Update {
    double loss_sum = 0;  // over all tokens of all ranks
    int64_t tokens = 0;
    double gradient_norm = 0;
  };
  // One optimizer step. Micro-batch l of the window belongs to the rank with data rank l / data.accumulation; the last
  // step of a run may leave ranks without one. Throws Error{usage} on every rank when loss or norm is not finite; the
  // weights are then untouched.
  Update step(const TokenRows& rows, const Window& window, int64_t step, double learning_rate);

  // Sum of -log p(next) over the first `count` rows, dealt out to the ranks in batches of data.sequences.
  double evaluate(const TokenRows& rows, int64_t count);

  // A checkpoint that any mesh goes on from, and that is a Hugging Face folder to other programs.
  void save(const std::filesystem::path& folder, const TrainState& state,
            const std::map<std::string, std::string>& fingerprints);
  void load(const std::filesystem::path& folder);

 private:
  std::vector<parallel::Segment> segments();

  const Recipe& recipe_;
  Ranks& ranks_;
  LanguageModel& model_;
  target::DifferentiableModel pieces_;
  std::optional<LabelledTokens> batch_;  // of the micro-batch that runs
  nn::RopeRows turns_;
  std::unique_ptr<parallel::Engine> engine_;
};

}  // namespace pacer::train
