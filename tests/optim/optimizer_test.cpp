#include "pacer/optim/optimizer.h"

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"
#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

std::map<std::string, at::Tensor> two_parameters() {
  return {{"fc.weight", at::ones({2, 3}).requires_grad_(true)},
          {"markov_head.markov_w1.weight", at::ones({4}).requires_grad_(true)}};
}

void give_gradients(std::map<std::string, at::Tensor>& parameters, double value) {
  for (auto& [name, weight] : parameters) weight.mutable_grad() = at::full(weight.sizes(), value);
}

TEST(Optimizer, AppliesTheRateOfTheFirstRuleThatMatches) {
  auto parameters = two_parameters();
  Optimizer optimizer(parameters, {.epsilon = 0}, {{"markov_head.*", 3.0}, {"*.weight", 1.0}});
  give_gradients(parameters, 5.0);
  optimizer.step(0.01, 1.0);
  // The first step moves every weight by its rate against the sign of its gradient.
  EXPECT_NEAR(parameters["fc.weight"][0][0].item<double>(), 0.99, 1e-6);
  EXPECT_NEAR(parameters["markov_head.markov_w1.weight"][0].item<double>(), 0.97, 1e-6);
  EXPECT_EQ(optimizer.steps(), 1);
}

TEST(Optimizer, LeavesParametersWithoutGradientAlone) {
  auto parameters = two_parameters();
  Optimizer optimizer(parameters, {.weight_decay = 0.5}, {});
  parameters["fc.weight"].mutable_grad() = at::ones({2, 3});
  optimizer.step(0.1, 1.0);
  EXPECT_TRUE(test::same_bits(parameters["markov_head.markov_w1.weight"], at::ones({4})));
  EXPECT_FALSE(test::same_bits(parameters["fc.weight"], at::ones({2, 3})));
}

TEST(Optimizer, ContinuesWithTheSameBitsFromItsState) {
  auto whole = two_parameters();
  Optimizer uninterrupted(whole, {}, {{"markov_head.*", 3.0}});
  std::vector<double> gradients = {0.5, -2.0, 1.5, 0.25};
  for (const double g : gradients) give_gradients(whole, g), uninterrupted.step(0.01, 0.9);

  auto first = two_parameters();
  Optimizer before(first, {}, {{"markov_head.*", 3.0}});
  for (size_t i = 0; i < 2; ++i) give_gradients(first, gradients[i]), before.step(0.01, 0.9);
  std::map<std::string, at::Tensor> second, state;
  for (const auto& [name, weight] : first) second[name] = weight.detach().clone().requires_grad_(true);
  for (const auto& [name, tensor] : before.state()) state[name] = tensor.clone();
  Optimizer after(second, {}, {{"markov_head.*", 3.0}});
  after.load_state(state, before.steps());
  for (size_t i = 2; i < 4; ++i) give_gradients(second, gradients[i]), after.step(0.01, 0.9);

  for (const auto& [name, weight] : whole) EXPECT_TRUE(test::same_bits(weight, second[name])) << name;
  for (const auto& [name, tensor] : uninterrupted.state()) EXPECT_TRUE(test::same_bits(tensor, after.state()[name]));
}

TEST(Optimizer, RefusesAStateThatIsNotItsOwn) {
  auto parameters = two_parameters();
  Optimizer optimizer(parameters, {}, {});
  const auto refused = [&](const std::map<std::string, at::Tensor>& state) {
    try {
      optimizer.load_state(state, 1);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  auto missing = optimizer.state();
  missing.erase("fc.weight.exp_avg");
  EXPECT_EQ(refused(missing), "optimizer state: 'fc.weight.exp_avg' is missing");
  auto extra = optimizer.state();
  extra["other.exp_avg"] = at::ones({1});
  EXPECT_EQ(refused(extra), "optimizer state: 'other.exp_avg' belongs to no parameter");
  auto shape = optimizer.state();
  shape["fc.weight.exp_avg"] = at::ones({3, 2});
  EXPECT_NE(refused(shape), "accepted");
  EXPECT_EQ(optimizer.steps(), 0);
}

TEST(Optimizer, ClearsGradientsInPlace) {
  auto parameters = two_parameters();
  Optimizer optimizer(parameters, {}, {});
  give_gradients(parameters, 2.0);
  optimizer.clear_gradients();
  for (auto& [name, gradient] : optimizer.gradients()) EXPECT_EQ(gradient.abs().sum().item<double>(), 0.0) << name;
}

TEST(RateRules, MatchLikeAShell) {
  EXPECT_TRUE(matches("markov_head.*", "markov_head.markov_w1.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("*w1*", "markov_head.markov_w1.weight"));
  EXPECT_TRUE(matches("layers.*.q_proj.weight", "layers.11.self_attn.q_proj.weight"));
  EXPECT_FALSE(matches("markov_head", "markov_head.markov_w1.weight"));
  EXPECT_FALSE(matches("*.bias", "fc.weight"));
  EXPECT_FALSE(matches("", "fc"));
}

TEST(RateRules, RefuseAPatternThatMatchesNothing) {
  try {
    rates_by_name({"fc.weight"}, {{"markow_head.*", 3}});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "learning-rate rule 'markow_head.*' matches no parameter");
    EXPECT_NE(error.hint().find("fc.weight"), std::string::npos);
  }
}

}  // namespace
}  // namespace pacer::optim
