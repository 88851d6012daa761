// A draft that many ranks train together: the step, the validation and the checkpoint of trainer.h, each as a call that
// all ranks make.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "pacer/draft/training.h"
#include "pacer/parallel/engine.h"
#include "pacer/train/engine_setup.h"
#include "pacer/train/feature_source.h"
#include "pacer/train/ranks.h"
#include "pacer/train/recipe.h"
#include "pacer/train/sample_order.h"
#include "pacer/train/state.h"
#include "pacer/train/window_loss.h"

namespace pacer::train {

class ParallelDraft {
 public:
  // The draft's masters become those of rank 0. The references must outlive the object.
  ParallelDraft(const Recipe& recipe, const draft::LossOptions& loss, Ranks& ranks, draft::DraftTraining& draft);

  struct Update {
    draft::LossTerms terms;  // of all ranks, added in the order of the window
    double gradient_norm = 0, clip = 1;
  };
  // What this rank computes of a window: micro-batch l belongs to the rank with data rank l / data.accumulation; a rank
  // may have none, or none with a supervised token. Reads nothing that step() changes.
  WindowPlan plan(const FeatureSource& features, Window window, int64_t step) const;

  // One optimizer step on plan(); `batch_of` is asked for each of its places once, in order. Losses are divided by what
  // is supervised in the whole window (with per_micro_batch by what is in a micro-batch), as in loss_scales(). Throws
  // Error{usage} on every rank when a loss or the norm is not finite; the weights are then untouched.
  Update step(const WindowPlan& plan, const BatchOf& batch_of, double learning_rate);

  // As evaluate() of window_loss.h, with the batches dealt out to the ranks.
  draft::LossTerms evaluate(FeatureSource& validation, int64_t limit);

  // A checkpoint that any mesh goes on from, and that is a draft to whoever loads one.
  void save(const std::filesystem::path& folder, const TrainState& state,
            const std::map<std::string, std::string>& fingerprints);
  void load(const std::filesystem::path& folder);

 private:
  void catch_up();  // masters and compute copies are the newest when it returns
  std::vector<draft::LossScale> scales(const std::vector<draft::BlockPlan>& plans, int64_t leaves, int64_t& supervised);
  std::vector<draft::LossTerms> exchange(const std::vector<draft::LossTerms>& terms, const char* purpose);

  const Recipe& recipe_;
  draft::LossOptions loss_;
  Ranks& ranks_;
  draft::DraftTraining& draft_;
  std::unique_ptr<parallel::Engine> engine_;
  bool behind_ = true;  // the compute copies are older than the masters
};

}  // namespace pacer::train
