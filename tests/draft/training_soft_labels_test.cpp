// The cross-entropy with the target's whole distribution in place of its token.
#include <gtest/gtest.h>

#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "tests/draft/golden_batch.h"

namespace pacer::draft {
namespace {

constexpr int64_t kVocabulary = 101, kLength = 60;

struct Case {
  DraftConfig config;
  std::shared_ptr<TablesTarget> target;
  FeatureBatch batch;

  Case() {
    const GoldenBatch golden("dspark/vanilla");
    config = golden.config();
    config.layer.vocab_size = kVocabulary;
    const int64_t width = config.layer.hidden_size;
    at::manual_seed(5);
    target = std::make_shared<TablesTarget>(at::randn({kVocabulary, width}), at::randn({kVocabulary, width}),
                                            config.target_layers);
    batch.ids = at::zeros({kLength}, at::kLong);
    for (int64_t i = 0; i < kLength; ++i) batch.ids[i] = i * 37 % kVocabulary;
    batch.supervised = at::zeros({kLength}, at::kByte) + 1;
    batch.starts = {0, kLength};
    batch.sample_ids = {1};
    batch.tapped = at::randn({kLength, static_cast<int64_t>(config.target_layer_ids.size()), width});
    batch.last = at::zeros({kLength, width});
  }

  // From now on the target gives all probability to the token `shift` after the one that follows each position.
  void teach_next(int64_t shift) {
    for (int64_t i = 0; i + 1 < kLength; ++i) {
      const int64_t next = (batch.ids[i + 1].item<int64_t>() + shift) % kVocabulary;
      const at::Tensor row = target->head_weight()[next];
      batch.last[i] = row * (200.0 / row.norm().item<double>());
    }
  }

  struct Step {
    double ce = 0;
    std::map<std::string, at::Tensor> gradients;
  };
  Step step(bool soft) const {
    device::Runtime runtime = device::Runtime::open("cpu");
    const auto training = DraftTraining::create(config, {.soft_labels = soft}, target, 3, at::kFloat, runtime);
    const BlockPlan plan = training->plan(batch, 20, {1, 1});
    Step step;
    step.ce = training->loss(batch, plan, {0.01, 0.0, 0.0}).ce_sum;
    for (const auto& [name, master] : training->parameters()) {
      if (master.grad().defined()) step.gradients[name] = master.grad().clone();
    }
    return step;
  }
};

TEST(SoftLabels, OfASureTargetAreItsTokens) {
  Case setup;
  setup.teach_next(0);
  const Case::Step hard = setup.step(false), soft = setup.step(true);
  EXPECT_NEAR(soft.ce, hard.ce, 1e-4 * hard.ce);
  for (const auto& [name, gradient] : hard.gradients) {
    EXPECT_TRUE(test::close_l2(soft.gradients.at(name), gradient, 1e-3)) << name;
  }
}

TEST(SoftLabels, FollowTheTargetWhereTheTextDoesNot) {
  Case setup;
  setup.teach_next(0);
  const Case::Step text = setup.step(true);
  setup.teach_next(11);
  const Case::Step hard = setup.step(false), other = setup.step(true);
  EXPECT_FALSE(test::close_l2(other.gradients.at("norm.weight"), text.gradients.at("norm.weight"), 0.1));
  EXPECT_FALSE(test::close_l2(other.gradients.at("norm.weight"), hard.gradients.at("norm.weight"), 0.1));
}

}  // namespace
}  // namespace pacer::draft
