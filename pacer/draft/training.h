// The training face of a block draft: a plan of blocks, then loss and gradients in one pass.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/device/runtime.h"
#include "pacer/draft/block_plan.h"
#include "pacer/draft/config.h"
#include "pacer/draft/features.h"
#include "pacer/target/target.h"

namespace pacer::draft {

// What multiplies the three sums before backward: alpha / denominator of the optimizer window.
struct LossScale {
  double ce = 0, l1 = 0, confidence = 0;
};

// Computes where the target is. Features may be there or in host memory; ids and masks are in host memory.
class DraftTraining {
 public:
  // A new draft with N(0, 0.02) weights drawn by (seed, initial_weights, tensor name), or warm-started (below).
  static std::unique_ptr<DraftTraining> create(const DraftConfig& config, const LossOptions& loss,
                                               std::shared_ptr<const target::Target> target, uint64_t seed,
                                               at::ScalarType compute_dtype, device::Runtime& runtime);
  // From a checkpoint folder (config.json, model.safetensors). The loss options are the caller's.
  static std::unique_ptr<DraftTraining> load(const std::filesystem::path& folder, const LossOptions& loss,
                                             std::shared_ptr<const target::Target> target, at::ScalarType compute_dtype,
                                             device::Runtime& runtime);
  virtual ~DraftTraining() = default;

  virtual const DraftConfig& config() const = 0;

  // Starts the draft layers from the target's layers (`target_layer_ids[i]` ... the last n), fc from the newest tap,
  // the final norm from the target's; q_norm and k_norm from the RMS per channel of q and k measured on `sample`.
  virtual void warm_start(const FeatureBatch& sample) = 0;

  // Masters: name -> f32 leaf with requires_grad, names of the checkpoint layout. The compute copies follow them after
  // refresh(), which the trainer calls after every optimizer step.
  virtual std::map<std::string, at::Tensor>& parameters() = 0;
  virtual void refresh() = 0;

  // Log-sum-exp of the target's logits for rows of FeatureBatch::last. They depend on the frozen target only: a trainer
  // that keeps features and these beside them spares most of the target's head in every later step (all but the kept
  // columns). Undefined where knowing them spares nothing: a full draft vocabulary, or a renormalised teacher.
  virtual at::Tensor teacher_log_sums(const at::Tensor& last) const = 0;
  virtual bool wants_log_sums() const = 0;  // whether knowing them spares anything

  virtual BlockPlan plan(const FeatureBatch& batch, int64_t anchors_per_sequence, const StepRandom& random) const = 0;

  // Adds the gradients of scale.ce * CE + scale.l1 * L1 + scale.confidence * BCE (sums over the plan) to the masters'
  // .grad and returns the sums. backward = false: evaluation only.
  virtual LossTerms loss(const FeatureBatch& batch, const BlockPlan& plan, const LossScale& scale,
                         bool backward = true) = 0;

  // config.json and model.safetensors (docs/files.md), dtype f32 or bf16; frozen embedding
  // and head are included only on request.
  virtual void save(const std::filesystem::path& folder, at::ScalarType dtype, bool with_frozen = false) const = 0;
};

}  // namespace pacer::draft
