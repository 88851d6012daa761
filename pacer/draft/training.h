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
#include "pacer/draft/config.h"
#include "pacer/draft/features.h"
#include "pacer/target/target.h"

namespace pacer::draft {

struct LossOptions {
  double ce_alpha = 0.1, l1_alpha = 0.9, confidence_alpha = 1.0;
  double decay_gamma = 4.0;           // weight exp(-k / gamma); <= 0: no decay
  std::string decay_kind = "dspark";  // "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"
  double dpace_alpha = 0.5;
  bool renormalised_teacher = false;  // p renormalised over the draft vocabulary, for comparison only
  int64_t tile_bytes = 64 << 20;      // f32 rows of logits that exist at once
};

// Which blocks of a batch are trained and with what weight: integers on the host, no torch work, a pure function of
// (ids, supervised, options, random). The denominators of an optimizer window are known from it before any backward.
struct BlockPlan {
  int64_t block_size = 0;
  std::vector<int64_t> sequence;      // [B] sequence of each live block
  std::vector<int64_t> anchor;        // [B] position of the anchor inside its sequence, ascending per sequence
  std::vector<uint64_t> sample_id;    // [B]
  std::vector<int64_t> label_row;     // [B*K] packed row of the label, -1 where unsupervised
  std::vector<int64_t> teacher_row;   // [B*K] packed row whose target state predicts the label (label_row - 1), -1
  std::vector<int64_t> previous_row;  // [B*K] packed row of the teacher-forced previous token
  std::vector<float> weight;          // [B*K] 0 where unsupervised
  double weight_sum = 0;              // D of the L1 and confidence terms
  double ce_weight_sum = 0;           // D of the cross-entropy: labels inside the draft vocabulary only
  int64_t blocks() const { return static_cast<int64_t>(anchor.size()); }
};

// What multiplies the three sums before backward: alpha / denominator of the optimizer window.
struct LossScale {
  double ce = 0, l1 = 0, confidence = 0;
};

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
  // the final norm from the target's; q_norm and k_norm from the RMS per channel of q and k measured on `sample`
  // (quickstart_recipe 10).
  virtual void warm_start(const FeatureBatch& sample) = 0;

  // Masters: name -> f32 leaf with requires_grad, names of the checkpoint layout. The compute copies follow them after
  // refresh(), which the trainer calls after every optimizer step.
  virtual std::map<std::string, at::Tensor>& parameters() = 0;
  virtual void refresh() = 0;

  virtual BlockPlan plan(const FeatureBatch& batch, int64_t anchors_per_sequence, const StepRandom& random) const = 0;

  // Adds the gradients of scale.ce * CE + scale.l1 * L1 + scale.confidence * BCE (sums over the plan) to the masters'
  // .grad and returns the sums. backward = false: evaluation only.
  virtual LossTerms loss(const FeatureBatch& batch, const BlockPlan& plan, const LossScale& scale,
                         bool backward = true) = 0;

  // config.json and model.safetensors in the layout of target_cache_and_dspark 6.2, dtype f32 or bf16; frozen embedding
  // and head are included only on request.
  virtual void save(const std::filesystem::path& folder, at::ScalarType dtype, bool with_frozen = false) const = 0;
};

}  // namespace pacer::draft
