#include "pacer/train/window_loss.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>

#include "pacer/base/error.h"
#include "pacer/device/runtime.h"
#include "pacer/train/draft_setup.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

TEST(LossScales, DivideByTheWholeWindow) {
  draft::BlockPlan a, b;
  a.weight_sum = 3, a.ce_weight_sum = 2;
  b.weight_sum = 5, b.ce_weight_sum = 2;
  draft::LossOptions options;
  options.ce_alpha = 0.5, options.l1_alpha = 2, options.confidence_alpha = 1;
  const auto window = loss_scales({a, b}, options, "supervised_weight");
  for (const draft::LossScale& scale : window) {
    EXPECT_DOUBLE_EQ(scale.ce, 0.5 / 4);
    EXPECT_DOUBLE_EQ(scale.l1, 2.0 / 8);
    EXPECT_DOUBLE_EQ(scale.confidence, 1.0 / 8);
  }
  const auto parity = loss_scales({a, b}, options, "per_micro_batch");
  EXPECT_DOUBLE_EQ(parity[0].l1, 2.0 / (3 + 1e-6) / 2);
  EXPECT_DOUBLE_EQ(parity[1].l1, 2.0 / (5 + 1e-6) / 2);
  EXPECT_DOUBLE_EQ(parity[1].ce, 0.5 / (2 + 1e-6) / 2);
  a.ce_weight_sum = 0;  // every label outside of the draft vocabulary
  EXPECT_EQ(loss_scales({a}, options, "supervised_weight")[0].ce, 0.0);
}

struct Bench {
  pacer::test::TemporaryFolder folder;
  Recipe recipe = test::tiny_recipe(folder.path());
  device::Runtime runtime = device::Runtime::open("cpu");
  std::shared_ptr<const target::Target> target = target::Target::load(test::tiny_target(), at::kFloat, runtime);
  std::shared_ptr<const std::vector<data::TokenRow>> rows =
      std::make_shared<const std::vector<data::TokenRow>>(test::tiny_rows(30));
  draft::DraftConfig config = draft_config(recipe, target->config(), *rows);
  std::unique_ptr<draft::DraftTraining> draft =
      draft::DraftTraining::create(config, loss_options(recipe), target, 3, at::kFloat, runtime);
  FeatureSource features{target, rows, config.target_layer_ids, {4, 1 << 20}};

  // Gradients of step 5 when its 12 rows are divided into micro-batches of `sequences`.
  std::map<std::string, at::Tensor> gradients(int64_t sequences, draft::LossTerms* terms = nullptr) {
    for (auto& [name, weight] : draft->parameters()) weight.mutable_grad() = at::Tensor();
    const SampleOrder order(3, features.rows(), sequences, 12 / sequences);
    const auto sums = window_gradients(*draft, features, order.window(2), 5, recipe, loss_options(recipe));
    if (terms != nullptr) *terms = sums;
    std::map<std::string, at::Tensor> gradients;
    for (auto& [name, weight] : draft->parameters()) {
      if (weight.grad().defined()) gradients[name] = weight.grad().clone();
    }
    return gradients;
  }
};

TEST(WindowGradients, AccumulationChangesNothingButTheOrderOfSums) {
  Bench bench;
  draft::LossTerms whole, parts;
  const auto expected = bench.gradients(12, &whole);
  for (const int64_t sequences : {6, 4, 1}) {
    const auto found = bench.gradients(sequences, &parts);
    for (const auto& [name, gradient] : expected) {
      EXPECT_TRUE(pacer::test::close_l2(found.at(name), gradient, 1e-5)) << name << ", " << sequences << " rows";
    }
    EXPECT_NEAR(parts.l1_sum, whole.l1_sum, 1e-5 * whole.l1_sum);
    EXPECT_EQ(parts.blocks, whole.blocks);
    EXPECT_DOUBLE_EQ(parts.l1_weight, whole.l1_weight);
  }
}

TEST(WindowGradients, TheOldRuleGivesOthers) {
  Bench bench;
  bench.recipe.loss.normalisation = "per_micro_batch";
  const auto whole = bench.gradients(12), parts = bench.gradients(1);
  EXPECT_FALSE(pacer::test::close_l2(parts.at("fc.weight"), whole.at("fc.weight"), 1e-3));
}

TEST(WindowGradients, AreTheGradientOfTheReportedLoss) {
  // d loss along the gradient, by a finite difference of what evaluation reports for the same blocks.
  Bench bench;
  const auto gradients = bench.gradients(12);
  at::Tensor& weight = bench.draft->parameters().at("fc.weight");
  const at::Tensor& gradient = gradients.at("fc.weight");
  const double squared = gradient.square().sum().item<double>();
  const SampleOrder order(3, bench.features.rows(), 12, 1);
  const draft::FeatureBatch batch = bench.features.batch(order.window(2).micro_batches[0]);
  const auto plan = bench.draft->plan(batch, bench.recipe.data.anchors, {3, 5});
  const auto loss_at = [&](double distance) {
    const at::Tensor before = weight.detach().clone();
    weight.detach().add_(gradient, distance);
    bench.draft->refresh();
    const draft::LossTerms terms = bench.draft->loss(batch, plan, {}, /*backward=*/false);
    weight.detach().copy_(before);
    bench.draft->refresh();
    const LossSection& loss = bench.recipe.loss;
    // The target of the confidence is the acceptance itself, which training does not differentiate.
    return loss.ce * terms.ce_sum / terms.ce_weight + loss.l1 * terms.l1_sum / terms.l1_weight;
  };
  bench.recipe.loss.confidence = 0;
  const auto without = bench.gradients(12);
  const double step = 1e-2 / std::sqrt(squared);
  const double slope = (loss_at(step) - loss_at(-step)) / (2 * step);
  const double expected = (without.at("fc.weight") * gradient).sum().item<double>();
  EXPECT_NEAR(slope, expected, 0.02 * std::abs(expected));
}

TEST(WindowGradients, SayWhichTermOfWhichStepIsNotFinite) {
  Bench bench;
  at::Tensor& weight = bench.draft->parameters().at("norm.weight");
  weight.detach()[0] = std::numeric_limits<float>::quiet_NaN();
  bench.draft->refresh();
  try {
    bench.gradients(6);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "step 5: the cross-entropy of micro-batch 1 is not finite");
    EXPECT_NE(error.hint().find("optimizer.learning_rate"), std::string::npos);
  }
}

TEST(Evaluate, IsTheSameEveryTimeAndLeavesNoGradients) {
  Bench bench;
  const auto first = evaluate(*bench.draft, bench.features, 0, bench.recipe);
  const auto second = evaluate(*bench.draft, bench.features, 0, bench.recipe);
  EXPECT_EQ(first.tau_sum, second.tau_sum);
  EXPECT_EQ(first.ce_sum, second.ce_sum);
  EXPECT_GT(first.blocks, evaluate(*bench.draft, bench.features, 5, bench.recipe).blocks);
  for (auto& [name, weight] : bench.draft->parameters()) {
    EXPECT_TRUE(!weight.grad().defined() || weight.grad().abs().sum().item<double>() == 0) << name;
  }
}

}  // namespace
}  // namespace pacer::train
