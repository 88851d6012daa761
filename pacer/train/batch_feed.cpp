#include "pacer/train/batch_feed.h"

#include <string>
#include <utility>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/device/device_memory.h"

namespace pacer::train {

BatchFeed::BatchFeed(const device::Runtime& runtime, FeatureSource& features, PlanOf plan_of, int64_t first,
                     int64_t last)
    : runtime_(runtime),
      features_(features),
      plan_of_(std::move(plan_of)),
      next_step_(first),
      last_step_(last),
      target_cpu_s_(features.statistics().cpu_s),
      prefetcher_(
          runtime, [this] { return prepare(); },
          [](const Prepared& made) {
            std::vector<at::Tensor> tensors;
            for (const at::Tensor& tensor : {made.batch.tapped, made.batch.last, made.batch.log_sum}) {
              if (tensor.defined()) tensors.push_back(tensor);
            }
            return tensors;
          }) {}

// On the worker's thread.
std::optional<BatchFeed::Prepared> BatchFeed::prepare() {
  if (!plan_ || next_micro_batch_ == plan_->plans.size()) {
    if (next_step_ > last_step_) return std::nullopt;
    plan_ = std::make_shared<const WindowPlan>(plan_of_(next_step_));
    if (plan_->window.micro_batches.empty() || plan_->plans.empty()) {
      throw Error(ErrorKind::bug, "BatchFeed: step " + std::to_string(next_step_) + " has no rows");
    }
    ++next_step_;
    next_micro_batch_ = 0;
  }
  Prepared made{plan_, next_micro_batch_++, {}, 0};
  if (plan_->plans[made.micro_batch].blocks() > 0) {
    made.batch = features_.batch(plan_->rows(made.micro_batch));
    made.batch.tapped = device::to_device(runtime_, made.batch.tapped);
    made.batch.last = device::to_device(runtime_, made.batch.last);
    made.batch.log_sum = device::to_device(runtime_, made.batch.log_sum);
  }
  made.target_cpu_s = features_.statistics().cpu_s;
  return made;
}

BatchFeed::Prepared BatchFeed::take(size_t micro_batch) {
  std::optional<Prepared> made = prefetcher_.next();
  if (!made || made->micro_batch != micro_batch) {
    throw Error(ErrorKind::bug, "BatchFeed: asked for micro-batch " + std::to_string(micro_batch) + " out of order");
  }
  target_cpu_s_ = made->target_cpu_s;
  return std::move(*made);
}

const WindowPlan& BatchFeed::next_window() {
  first_of_window_ = take(0);
  current_ = first_of_window_->plan;
  return *current_;
}

draft::FeatureBatch BatchFeed::batch(size_t micro_batch) {
  if (micro_batch > 0) return take(micro_batch).batch;
  draft::FeatureBatch batch = std::move(first_of_window_.value().batch);
  first_of_window_.reset();
  return batch;
}

}  // namespace pacer::train
