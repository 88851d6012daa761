// Windows and batches of the coming steps, made and brought to the device while the draft trains on the present one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "pacer/device/prefetcher.h"
#include "pacer/device/runtime.h"
#include "pacer/train/feature_source.h"
#include "pacer/train/window_loss.h"

namespace pacer::train {

// A thread with a stream of its own plans each window (or this rank's share), computes the features of its
// micro-batches and copies them to the device from pinned memory; on the host it is a thread and nothing more. One
// batch waits while one is in use. The bits are those of batches that are made when they are needed.
//
// While it lives, `features` belongs to it, except tokens() and rows(). What the target throws (and an allocator that
// has no memory left) is thrown by the call that asks for that batch, as itself.
class BatchFeed {
 public:
  // What a step trains on; called on the thread, for one step after another.
  using PlanOf = std::function<WindowPlan(int64_t step)>;
  // Steps first .. last. `features` must outlive the feed.
  BatchFeed(const device::Runtime& runtime, FeatureSource& features, PlanOf plan_of, int64_t first, int64_t last);

  // The next step's window. Its batches must have been taken before the one after it is asked for.
  const WindowPlan& next_window();
  // The features of its micro-batch, on the device; nothing for one without blocks. In order, once each.
  draft::FeatureBatch batch(size_t micro_batch);
  // CPU seconds in the target for what was taken so far.
  double target_cpu_s() const { return target_cpu_s_; }

 private:
  struct Prepared {
    std::shared_ptr<const WindowPlan> plan;
    size_t micro_batch = 0;
    draft::FeatureBatch batch;
    double target_cpu_s = 0;
  };
  std::optional<Prepared> prepare();
  Prepared take(size_t micro_batch);

  const device::Runtime runtime_;
  FeatureSource& features_;
  const PlanOf plan_of_;
  int64_t next_step_, last_step_;
  // What the worker is at.
  std::shared_ptr<const WindowPlan> plan_;
  size_t next_micro_batch_ = 0;
  // What the loop is at: the first micro-batch of a window arrives with it.
  std::optional<Prepared> first_of_window_;
  std::shared_ptr<const WindowPlan> current_;
  double target_cpu_s_;
  device::Prefetcher<Prepared> prefetcher_;  // last: its thread uses the members above
};

}  // namespace pacer::train
