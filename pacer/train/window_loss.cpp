#include "pacer/train/window_loss.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "pacer/base/error.h"

namespace pacer::train {
namespace {

double divide(double alpha, double denominator) { return denominator > 0 ? alpha / denominator : 0.0; }

}  // namespace

void require_finite(const draft::LossTerms& terms, int64_t step, size_t micro_batch) {
  const auto check = [&](double sum, const char* name) {
    if (std::isfinite(sum)) return;
    throw Error(ErrorKind::usage,
                "step " + std::to_string(step) + ": the " + name + " of micro-batch " +
                    std::to_string(micro_batch + 1) + " is not finite",
                "the draft diverged: lower optimizer.learning_rate or lengthen the warm-up, and begin a new run");
  };
  check(terms.ce_sum, "cross-entropy");
  check(terms.l1_sum, "L1 distance");
  check(terms.confidence_sum, "confidence loss");
}

std::vector<draft::LossScale> loss_scales(const std::vector<draft::BlockPlan>& plans, const draft::LossOptions& options,
                                          const std::string& normalisation) {
  std::vector<draft::LossScale> scales;
  if (normalisation == "per_micro_batch") {
    constexpr double kEpsilon = 1e-6;  // as in the rule that this mode reproduces
    const auto count = static_cast<double>(plans.size());
    for (const draft::BlockPlan& plan : plans) {
      const double ce = plan.ce_weight_sum + kEpsilon, all = plan.weight_sum + kEpsilon;
      scales.push_back(
          {options.ce_alpha / ce / count, options.l1_alpha / all / count, options.confidence_alpha / all / count});
    }
    return scales;
  }
  double ce = 0, all = 0;
  for (const draft::BlockPlan& plan : plans) ce += plan.ce_weight_sum, all += plan.weight_sum;
  scales.assign(plans.size(),
                {divide(options.ce_alpha, ce), divide(options.l1_alpha, all), divide(options.confidence_alpha, all)});
  return scales;
}

WindowPlan plan_window(const draft::DraftTraining& draft, const FeatureSource& features, Window window, int64_t step,
                       const Recipe& recipe, const draft::LossOptions& options) {
  const auto all = static_cast<int64_t>(window.micro_batches.size());
  WindowPlan plan = plan_share(draft, features, std::move(window), step, recipe, 0, all);
  plan.scales = loss_scales(plan.plans, options, recipe.loss.normalisation);
  return plan;
}

WindowPlan plan_share(const draft::DraftTraining& draft, const FeatureSource& features, Window window, int64_t step,
                      const Recipe& recipe, int64_t first, int64_t count) {
  const draft::StepRandom random{static_cast<uint64_t>(recipe.seed), static_cast<uint64_t>(step)};
  const auto all = static_cast<int64_t>(window.micro_batches.size());
  WindowPlan plan{step, std::move(window), first, std::vector<draft::BlockPlan>(static_cast<size_t>(count)), {}};
  for (int64_t k = 0; k < count && first + k < all; ++k) {
    const auto place = static_cast<size_t>(k);
    plan.plans[place] = draft.plan(features.tokens(plan.rows(place)), recipe.data.anchors, random);
  }
  return plan;
}

BatchOf batches_when_needed(FeatureSource& features, const WindowPlan& plan) {
  return [&](size_t i) { return plan.plans[i].blocks() == 0 ? draft::FeatureBatch() : features.batch(plan.rows(i)); };
}

draft::LossTerms window_gradients(draft::DraftTraining& draft, const WindowPlan& plan, const BatchOf& batch_of) {
  draft::LossTerms sums;
  for (size_t i = 0; i < plan.plans.size(); ++i) {
    const draft::FeatureBatch batch = batch_of(i);
    if (plan.plans[i].blocks() == 0) continue;
    const draft::LossTerms terms = draft.loss(batch, plan.plans[i], plan.scales[i]);
    require_finite(terms, plan.step, i);
    sums.add(terms);
  }
  return sums;
}

draft::LossTerms window_gradients(draft::DraftTraining& draft, FeatureSource& features, const Window& window,
                                  int64_t step, const Recipe& recipe, const draft::LossOptions& options) {
  const WindowPlan plan = plan_window(draft, features, window, step, recipe, options);
  return window_gradients(draft, plan, batches_when_needed(features, plan));
}

std::vector<draft::LossTerms> evaluate_batches(draft::DraftTraining& draft, FeatureSource& features, int64_t limit,
                                               const Recipe& recipe, int64_t first, int64_t every) {
  const int64_t rows = limit > 0 ? std::min(limit, features.rows()) : features.rows();
  const draft::StepRandom random{static_cast<uint64_t>(recipe.seed), 0};  // step 0 is no training step
  std::vector<draft::LossTerms> terms;
  for (int64_t begin = 0; begin < rows; begin += recipe.data.sequences) {
    terms.emplace_back();
    if (static_cast<int64_t>(terms.size() - 1) % every != first) continue;
    std::vector<int64_t> batch;
    for (int64_t row = begin; row < std::min(begin + recipe.data.sequences, rows); ++row) batch.push_back(row);
    const draft::BlockPlan plan = draft.plan(features.tokens(batch), recipe.data.anchors, random);
    if (plan.blocks() > 0) terms.back() = draft.loss(features.batch(batch), plan, {}, /*backward=*/false);
  }
  return terms;
}

draft::LossTerms evaluate(draft::DraftTraining& draft, FeatureSource& features, int64_t limit, const Recipe& recipe) {
  draft::LossTerms sums;
  for (const draft::LossTerms& terms : evaluate_batches(draft, features, limit, recipe)) sums.add(terms);
  return sums;
}

}  // namespace pacer::train
