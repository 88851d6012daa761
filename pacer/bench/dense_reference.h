// The DSpark loss as its definition says it: full logits, full masks, autograd. Slow, large, and easy to believe.
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "pacer/draft/block_plan.h"
#include "pacer/draft/config.h"
#include "pacer/draft/features.h"
#include "pacer/target/target.h"

namespace pacer::bench {

struct DenseStep {
  double loss = 0, gradient_norm = 0;
};

// In f32, from masters by their checkpoint names; of `plan` only sequence and anchor of each block are read. With slot
// k of block b predicting the token behind position anchor_b + k:
//
//   loss = ce_alpha CE + l1_alpha L1 + confidence_alpha BCE, each sum_i w_i term_i / sum_i w_i
//   w = exp(-k / gamma) where all tokens anchor + 1 .. anchor + k + 1 are supervised, else 0
//   L1 = ||softmax(draft) - softmax(last head^T)||_1,  BCE against 1 - L1 / 2 as a constant
//
// For a vanilla Markov head, slots counted from the anchor and the full vocabulary; throws Error{usage} for other
// drafts. Memory: several tensors of [slots, V] f32.
DenseStep dense_step(const draft::DraftConfig& config, const std::map<std::string, at::Tensor>& masters,
                     const draft::FeatureBatch& batch, const draft::BlockPlan& plan, const draft::LossOptions& options,
                     const target::Target& target);

}  // namespace pacer::bench
