#include "pacer/draft/features.h"

#include "pacer/base/error.h"

namespace pacer::draft {

void LossTerms::add(const LossTerms& other) {
  ce_sum += other.ce_sum, ce_weight += other.ce_weight;
  l1_sum += other.l1_sum, l1_weight += other.l1_weight;
  confidence_sum += other.confidence_sum, confidence_weight += other.confidence_weight;
  if (accept_sum.empty()) accept_sum.resize(other.accept_sum.size()), accept_count.resize(other.accept_count.size());
  if (!other.accept_sum.empty() && accept_sum.size() != other.accept_sum.size()) {
    throw Error(ErrorKind::bug, "LossTerms: " + std::to_string(accept_sum.size()) + " and " +
                                    std::to_string(other.accept_sum.size()) + " drafts per block cannot be added");
  }
  for (size_t k = 0; k < other.accept_sum.size(); ++k) {
    accept_sum[k] += other.accept_sum[k];
    accept_count[k] += other.accept_count[k];
  }
  correct += other.correct;
  tau_sum += other.tau_sum;
  blocks += other.blocks;
  label_kept += other.label_kept, label_total += other.label_total;
  confidence_abs_error_sum += other.confidence_abs_error_sum;
  confidence_bias_sum += other.confidence_bias_sum;
  confidence_survival_bias_sum += other.confidence_survival_bias_sum;
}

}  // namespace pacer::draft
