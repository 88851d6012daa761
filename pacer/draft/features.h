// What a draft is trained on: the target's hidden states over supervised text, packed without padding.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::draft {

struct FeatureBatch {
  at::Tensor ids;                    // [T] i64
  at::Tensor supervised;             // [T] u8 on the host: 1 where the token is an answer of the target
  std::vector<int64_t> starts;       // S + 1 offsets; positions restart at 0 in every sequence
  at::Tensor tapped;                 // [T, m, H] target dtype, in the order of the draft's target_layer_ids
  at::Tensor last;                   // [T, H] target state after the final norm
  at::Tensor log_sum;                // [T] f32 log-sum-exp of the target's logits, or undefined: not known
  std::vector<uint64_t> sample_ids;  // [S] what the random draws of a sequence depend on
};

// Sums and counts, never means: they add over micro-batches and ranks, and are divided once.
struct LossTerms {
  double ce_sum = 0, ce_weight = 0;                  // sum of w * CE, sum of w over kept labels
  double l1_sum = 0, l1_weight = 0;                  // sum of w * ||q - p||_1
  double confidence_sum = 0, confidence_weight = 0;  // sum of w * BCE
  std::vector<double> accept_sum;                    // [drafts per block] acceptance rates of supervised slots
  std::vector<int64_t> accept_count;                 // [drafts per block]
  int64_t correct = 0;                               // supervised slots whose most likely token is the label
  double tau_sum = 0;                                // sum over blocks of 1 + sum_k prod_{j<=k} accept_j
  int64_t blocks = 0;                                // blocks with at least one supervised slot
  int64_t label_kept = 0, label_total = 0;           // coverage of the draft vocabulary
  // Of sigmoid(c) against the acceptance rate a, weighted: |sigmoid(c) - a|, its signed form, and the same for the
  // products over the block so far.
  double confidence_abs_error_sum = 0, confidence_bias_sum = 0, confidence_survival_bias_sum = 0;
  void add(const LossTerms& other);
};

}  // namespace pacer::draft
