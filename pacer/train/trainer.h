// The training loop. trainer.cpp is meant to be read from top to bottom.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pacer/base/clocks.h"
#include "pacer/draft/training.h"
#include "pacer/optim/optimizer.h"
#include "pacer/optim/schedule.h"
#include "pacer/train/batch_feed.h"
#include "pacer/train/checkpoint.h"
#include "pacer/train/feature_source.h"
#include "pacer/train/metrics.h"
#include "pacer/train/parallel_draft.h"
#include "pacer/train/plan.h"
#include "pacer/train/ranks.h"
#include "pacer/train/recipe.h"
#include "pacer/train/sample_order.h"
#include "pacer/train/state.h"

namespace pacer::train {

// What the loop works on, made by train.cpp: new, or as a checkpoint left it.
struct Workbench {
  Recipe recipe;
  draft::LossOptions loss;
  std::unique_ptr<draft::DraftTraining> draft;
  std::unique_ptr<optim::Optimizer> optimizer;  // of one process alone; null when ranks train together
  std::unique_ptr<ParallelDraft> together;      // of ranks; null for one process alone
  std::unique_ptr<FeatureSource> features;
  std::unique_ptr<FeatureSource> validation;  // null without validation rows
  std::map<std::string, std::string> fingerprints;

  // What this process computes of each step, for a BatchFeed; the bench must outlive it.
  BatchFeed::PlanOf plan_of(const SampleOrder& order) const;
};

class Trainer {
 public:
  // stop: asked after every step; true saves and leaves, on all ranks when one says so. metrics: null on ranks that do
  // not write. The references must outlive the trainer.
  Trainer(const device::Runtime& runtime, Workbench& bench, Ranks& ranks, const RunPlan& plan,
          const optim::Schedule& schedule, TrainState state, CheckpointStore& checkpoints, MetricsLog* metrics,
          std::function<bool()> stop);

  // Trains until the plan is done or stop() says so; the last step is then saved. Throws Error{usage} when loss or
  // gradient is not finite, before anything of that step has touched the weights.
  void run();

  const TrainState& state() const { return state_; }

 private:
  struct Update {
    double learning_rate, gradient_norm, clip;
  };
  Update train_step(BatchFeed& feed);
  Update alone(const WindowPlan& plan, const BatchOf& batch_of, draft::LossTerms& terms);
  Update together(const WindowPlan& plan, const BatchOf& batch_of, draft::LossTerms& terms);
  void record(const Update& update);
  bool validate();           // whether the draft is the best so far
  void save(int64_t epoch);  // epoch: the one that ends here, 0: none

  const device::Runtime runtime_;
  Workbench& bench_;
  Ranks& ranks_;
  const RunPlan& plan_;
  optim::Schedule schedule_;
  SampleOrder order_;
  TrainState state_;
  CheckpointStore& checkpoints_;
  MetricsLog* metrics_;
  std::function<bool()> stop_;
  Stopwatch watch_;
  double target_cpu_s_ = 0;  // in the target for the steps so far
};

}  // namespace pacer::train
