// One optimizer window: its plans, what its losses are divided by, and the gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pacer/draft/training.h"
#include "pacer/train/feature_source.h"
#include "pacer/train/recipe.h"
#include "pacer/train/sample_order.h"

namespace pacer::train {

// What multiplies the sums of each micro-batch, with D the sum of the weights of the plans:
//   supervised_weight   alpha / D of the whole window: accumulation 1 or 4 gives the same gradients
//   per_micro_batch     alpha / (D of the micro-batch + 1e-6) / micro-batches: DeepSpec's rule
// A term without any weight is multiplied by 0.
std::vector<draft::LossScale> loss_scales(const std::vector<draft::BlockPlan>& plans, const draft::LossOptions& options,
                                          const std::string& normalisation);

// A window, or one rank's share of it, before anything of it is computed: a pure function of (rows, recipe, step).
struct WindowPlan {
  int64_t step = 0;
  Window window;                         // of all ranks
  int64_t first = 0;                     // the micro-batch that plans[0] is of
  std::vector<draft::BlockPlan> plans;   // one per micro-batch; without blocks where the window has no such micro-batch
  std::vector<draft::LossScale> scales;  // one per plan; empty for a share: its denominators are sums over all ranks
  const std::vector<int64_t>& rows(size_t plan) const {
    return window.micro_batches[static_cast<size_t>(first) + plan];
  }
};
WindowPlan plan_window(const draft::DraftTraining& draft, const FeatureSource& features, Window window, int64_t step,
                       const Recipe& recipe, const draft::LossOptions& options);
// Micro-batches [first, first + count) of it.
WindowPlan plan_share(const draft::DraftTraining& draft, const FeatureSource& features, Window window, int64_t step,
                      const Recipe& recipe, int64_t first, int64_t count);

// The features of a micro-batch; nothing for one without blocks. Asked for once each, in order.
using BatchOf = std::function<draft::FeatureBatch(size_t micro_batch)>;

// Makes them when they are needed. The references must outlive it.
BatchOf batches_when_needed(FeatureSource& features, const WindowPlan& plan);

// Adds the gradients of the window's rows to the draft's parameters and returns the sums of its losses. `step` decides
// the anchors. Throws Error{usage} naming step and term when a sum is not finite; the gradients are then worthless, the
// weights untouched.
draft::LossTerms window_gradients(draft::DraftTraining& draft, const WindowPlan& plan, const BatchOf& batch_of);
// The same with batches made when they are needed.
draft::LossTerms window_gradients(draft::DraftTraining& draft, FeatureSource& features, const Window& window,
                                  int64_t step, const Recipe& recipe, const draft::LossOptions& options);

// Throws Error{usage} naming step and micro-batch when a sum is not finite.
void require_finite(const draft::LossTerms& terms, int64_t step, size_t micro_batch);

// The losses of the first `limit` rows (0: all) without gradients, with anchors that are the same every time, by batch
// of data.sequences rows. Of `every` batches the one at `first` is computed, the others are empty.
std::vector<draft::LossTerms> evaluate_batches(draft::DraftTraining& draft, FeatureSource& features, int64_t limit,
                                               const Recipe& recipe, int64_t first = 0, int64_t every = 1);

// Their sum.
draft::LossTerms evaluate(draft::DraftTraining& draft, FeatureSource& features, int64_t limit, const Recipe& recipe);

}  // namespace pacer::train
