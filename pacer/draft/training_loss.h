// From the rows of the fused loss to weights, sums and counts of a batch of blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "pacer/draft/block_plan.h"
#include "pacer/draft/config.h"
#include "pacer/draft/features.h"

namespace pacer::draft {

// The supervised slots of a plan: only these become logits. Slot b * K + k of the plan is row i of the loss.
struct LiveSlots {
  std::vector<int64_t> slot;         // [R] ascending
  std::vector<int64_t> label;        // [R] draft id, -1 outside the draft vocabulary
  std::vector<int64_t> teacher_row;  // [R] packed row
  std::vector<float> weight;         // [R] of the plan
};
// Those of slots [begin, end), counted from begin.
LiveSlots slots_between(const LiveSlots& live, int64_t begin, int64_t end);
// ids: [T] packed tokens on the host.
LiveSlots live_slots(const DraftConfig& config, const BlockPlan& plan, const int64_t* ids);

// D-PACE weights of the live slots of each block, from their cross-entropy (detached). With q_j = exp(-CE_j),
// s_j = (1 - alpha) q_j + alpha on slots that carry a cross-entropy and 1 elsewhere, c_j = s_0 ... s_j:
//   dpace                              sum over i >= j of c_i, over slots with a cross-entropy
//   dpace-cumulative-confidence-only   c_j
//   dpace-continuation-value-only      the first divided by c_j
// Throws Error{usage} for another decay_kind.
std::vector<float> dpace_weights(const LossOptions& options, const BlockPlan& plan, const LiveSlots& live,
                                 const std::vector<float>& cross_entropy);

// Whether decay_kind is known; Error{usage} otherwise.
void check_loss_options(const LossOptions& options);

// What one pass of the fused loss gave for every live slot.
struct LiveLosses {
  std::vector<float> ce, l1;             // [R]
  std::vector<uint8_t> correct;          // [R]
  bool has_teacher = true;               // l1 is meaningful
  std::vector<float> ce_weight;          // [R] the plan's, or D-PACE's
  std::vector<float> confidence;         // [R] logits, empty without a head
  void append(const LiveLosses& later);  // of further slots of the same plan
};

// clamp(1 - l1 / 2, 0, 1): the probability that a draft of this slot is accepted.
float acceptance(float l1);

// BCE and derivative of the confidence head: target acceptance, logit c.
//   BCE = max(c, 0) - c a + log(1 + exp(-|c|)),   d BCE / d c = sigmoid(c) - a
struct Confidence {
  double loss, sigmoid;
};
Confidence confidence_loss(float logit, float acceptance);

LossTerms sum_terms(const DraftConfig& config, const BlockPlan& plan, const LiveSlots& live, const LiveLosses& losses);

}  // namespace pacer::draft
