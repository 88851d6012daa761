#include "pacer/draft/training_loss.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "pacer/base/error.h"

namespace pacer::draft {
namespace {

constexpr const char* kDpace = "dpace";
constexpr const char* kCumulative = "dpace-cumulative-confidence-only";
constexpr const char* kContinuation = "dpace-continuation-value-only";

// Calls body(first, last) for the live slots of each block that has any.
template <typename Body>
void for_blocks(const BlockPlan& plan, const LiveSlots& live, const Body& body) {
  for (size_t first = 0; first < live.slot.size();) {
    const int64_t block = live.slot[first] / plan.block_size;
    size_t last = first;
    while (last < live.slot.size() && live.slot[last] / plan.block_size == block) ++last;
    body(first, last);
    first = last;
  }
}

}  // namespace

void check_loss_options(const LossOptions& options) {
  for (const char* known : {"dspark", kDpace, kCumulative, kContinuation}) {
    if (options.decay_kind == known) return;
  }
  throw Error(ErrorKind::usage, "decay_kind is \"" + options.decay_kind + "\", allowed: \"dspark\", \"" + kDpace +
                                    "\", \"" + kCumulative + "\", \"" + kContinuation + "\"");
}

LiveSlots live_slots(const DraftConfig& config, const BlockPlan& plan, const int64_t* ids) {
  LiveSlots live;
  for (size_t slot = 0; slot < plan.label_row.size(); ++slot) {
    if (plan.label_row[slot] < 0) continue;
    const int64_t id = ids[plan.label_row[slot]];
    int64_t label = id;
    if (config.reduced()) {
      const auto at = std::lower_bound(config.kept_ids.begin(), config.kept_ids.end(), id);
      label = at != config.kept_ids.end() && *at == id ? at - config.kept_ids.begin() : -1;
    }
    live.slot.push_back(static_cast<int64_t>(slot));
    live.label.push_back(label);
    live.teacher_row.push_back(plan.teacher_row[slot]);
    live.weight.push_back(plan.weight[slot]);
  }
  return live;
}

LiveSlots slots_between(const LiveSlots& live, int64_t begin, int64_t end) {
  const auto first = std::ranges::lower_bound(live.slot, begin) - live.slot.begin();
  const auto last = std::ranges::lower_bound(live.slot, end) - live.slot.begin();
  const auto cut = [&](const auto& list) {
    return std::decay_t<decltype(list)>(list.begin() + first, list.begin() + last);
  };
  LiveSlots part{cut(live.slot), cut(live.label), cut(live.teacher_row), cut(live.weight)};
  for (int64_t& slot : part.slot) slot -= begin;
  return part;
}

std::vector<float> dpace_weights(const LossOptions& options, const BlockPlan& plan, const LiveSlots& live,
                                 const std::vector<float>& cross_entropy) {
  check_loss_options(options);
  std::vector<float> weights(live.slot.size(), 0.0f);
  for_blocks(plan, live, [&](size_t first, size_t last) {
    std::vector<double> confidence(last - first);
    double product = 1.0;  // slots without a cross-entropy have s = 1
    for (size_t i = first; i < last; ++i) {
      if (live.label[i] >= 0) {
        const double q = std::exp(-static_cast<double>(cross_entropy[i]));
        product *= (1.0 - options.dpace_alpha) * q + options.dpace_alpha;
      }
      confidence[i - first] = product;
    }
    double value = 0.0;
    for (size_t i = last; i-- > first;) {
      if (live.label[i] < 0) continue;
      value += confidence[i - first];
      const double weight = options.decay_kind == kDpace        ? value
                            : options.decay_kind == kCumulative ? confidence[i - first]
                                                                : value / confidence[i - first];
      weights[i] = static_cast<float>(weight);
    }
  });
  return weights;
}

float acceptance(float l1) { return std::clamp(1.0f - 0.5f * l1, 0.0f, 1.0f); }

Confidence confidence_loss(float logit, float accepted) {
  const double c = static_cast<double>(logit), a = static_cast<double>(accepted);
  return {std::max(c, 0.0) - c * a + std::log1p(std::exp(-std::abs(c))), 1.0 / (1.0 + std::exp(-c))};
}

void LiveLosses::append(const LiveLosses& later) {
  const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
  add(ce, later.ce), add(l1, later.l1), add(correct, later.correct);
  add(ce_weight, later.ce_weight), add(confidence, later.confidence);
  has_teacher = later.has_teacher;
}

LossTerms sum_terms(const DraftConfig& config, const BlockPlan& plan, const LiveSlots& live, const LiveLosses& losses) {
  LossTerms terms;
  const auto drafts = static_cast<size_t>(config.drafts_per_block());
  const int64_t first_slot = config.sample_from_anchor ? 0 : 1;
  terms.accept_sum.resize(drafts), terms.accept_count.resize(drafts);
  terms.ce_weight = plan.ce_weight_sum;
  for_blocks(plan, live, [&](size_t first, size_t last) {
    ++terms.blocks;
    double survival = 1.0, believed = 1.0, tau = 1.0;
    int64_t next = first_slot;  // a hole ends what can be accepted
    for (size_t i = first; i < last; ++i) {
      const int64_t slot = live.slot[i] % plan.block_size;
      const auto draft = static_cast<size_t>(slot - first_slot);
      const auto weight = static_cast<double>(live.weight[i]);
      ++terms.label_total;
      terms.correct += losses.correct[i];
      if (live.label[i] >= 0) {
        ++terms.label_kept;
        terms.ce_sum += static_cast<double>(losses.ce_weight[i]) * static_cast<double>(losses.ce[i]);
      }
      if (!losses.has_teacher) continue;
      const float accepted = acceptance(losses.l1[i]);
      terms.l1_sum += weight * static_cast<double>(losses.l1[i]);
      terms.l1_weight += weight;
      terms.accept_sum[draft] += static_cast<double>(accepted);
      ++terms.accept_count[draft];
      survival = slot == next ? survival * static_cast<double>(accepted) : 0.0;
      next = slot + 1;
      tau += survival;
      if (losses.confidence.empty()) continue;
      const Confidence of = confidence_loss(losses.confidence[i], accepted);
      const double off = of.sigmoid - static_cast<double>(accepted);
      believed *= of.sigmoid;
      terms.confidence_sum += weight * of.loss;
      terms.confidence_weight += weight;
      terms.confidence_abs_error_sum += weight * std::abs(off);
      terms.confidence_bias_sum += weight * off;
      terms.confidence_survival_bias_sum += weight * (believed - survival);
    }
    if (losses.has_teacher) terms.tau_sum += tau;
  });
  return terms;
}

}  // namespace pacer::draft
