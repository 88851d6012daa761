#include "pacer/optim/optimizer.h"

#include <limits>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"
#include "pacer/optim/clip.h"
#include "tests/support/files.h"
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

// What two processes must agree on and a restart must keep: a parameter that took no part in a step is as it was.
TEST(Optimizer, CountsTheStepsOfEachParameter) {
  auto parameters = two_parameters();
  Optimizer optimizer(parameters, {.epsilon = 0}, {});
  give_gradients(parameters, 1.0);
  optimizer.step(0.01, 1.0);
  parameters["fc.weight"].mutable_grad() = at::Tensor();
  const at::Tensor before = optimizer.state()["fc.weight.exp_avg"].clone();
  optimizer.step(0.01, 1.0);
  EXPECT_EQ(optimizer.steps(), 2);
  EXPECT_EQ(optimizer.state()["fc.weight.step"].item<int64_t>(), 1);
  EXPECT_EQ(optimizer.state()["markov_head.markov_w1.weight.step"].item<int64_t>(), 2);
  EXPECT_TRUE(test::same_bits(optimizer.state()["fc.weight.exp_avg"], before));
  // With its own counter the bias corrections are those of its second step: all gradients alike move it by the rate.
  give_gradients(parameters, 1.0);
  const double weight = parameters["fc.weight"][0][0].item<double>();
  optimizer.step(0.01, 1.0);
  EXPECT_NEAR(parameters["fc.weight"][0][0].item<double>(), weight - 0.01, 1e-6);
}

TEST(Optimizer, ReadsAStateWithoutCounters) {
  auto parameters = two_parameters();
  Optimizer optimizer(parameters, {}, {});
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) {
    if (!name.ends_with(".step")) state[name] = at::full(tensor.sizes(), 0.25f);
  }
  optimizer.load_state(state, 7);
  EXPECT_EQ(optimizer.steps(), 7);
  EXPECT_EQ(optimizer.state()["fc.weight.step"].item<int64_t>(), 7);
  EXPECT_EQ(optimizer.state()["fc.weight.exp_avg"][0][0].item<double>(), 0.25);
}

OptimizerOptions muon_for_matrices() {
  OptimizerOptions options;
  options.routes.matrix = Route::muon;
  options.muon_rate = 4;
  options.muon_weight_decay = 0.1;
  options.adamw.weight_decay = 0.01;
  return options;
}

std::map<std::string, at::Tensor> small_model() {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& [name, sizes] : std::map<std::string, std::vector<int64_t>>{
           {"embed_tokens.weight", {20, 8}}, {"layers.0.up.weight", {16, 8}}, {"layers.0.norm.weight", {8}}}) {
    parameters[name] = at::randn(sizes).requires_grad_(true);
  }
  return parameters;
}

std::map<std::string, at::Tensor> copy_of(const std::map<std::string, at::Tensor>& parameters) {
  std::map<std::string, at::Tensor> copy;
  for (const auto& [name, weight] : parameters) copy[name] = weight.detach().clone().requires_grad_(true);
  return copy;
}

TEST(OptimizerWithMuon, IsTheTwoUpdatesByRoute) {
  auto parameters = small_model(), expected = copy_of(parameters);
  const OptimizerOptions options = muon_for_matrices();
  Optimizer optimizer(parameters, options);
  for (auto& [name, weight] : parameters) weight.mutable_grad() = at::randn(weight.sizes());
  optimizer.step(0.01, 0.5);

  MuonParameter up;
  up.weight = expected["layers.0.up.weight"].detach();
  up.gradient = parameters["layers.0.up.weight"].grad();
  up.momentum = zero_momentum(up.weight, options.muon);
  up.rate = 0.04, up.weight_decay = 0.1, up.gradient_scale = 0.5;
  muon_update({up}, options.muon);
  EXPECT_TRUE(test::same_bits(parameters["layers.0.up.weight"], up.weight));
  EXPECT_TRUE(test::same_bits(optimizer.state()["layers.0.up.weight.momentum_buffer"], up.momentum));
  for (const std::string name : {"embed_tokens.weight", "layers.0.norm.weight"}) {
    at::Tensor weight = expected[name].detach(), first = at::zeros_like(weight), second = at::zeros_like(weight);
    adamw_update(weight, parameters[name].grad(), 0.5, first, second, 1, 0.01, options.adamw);
    EXPECT_TRUE(test::same_bits(parameters[name], weight)) << name;
    EXPECT_TRUE(test::same_bits(optimizer.state()[name + ".exp_avg"], first)) << name;
  }
}

// The recorded run: one norm over all gradients, then Muon for the matrix and AdamW for the rest.
TEST(OptimizerWithMuon, MixedStepsAsRecorded) {
  const test::GoldenTensors golden("muon/adamw_clip.safetensors");
  nlohmann::json settings;
  for (const auto& entry : test::golden_json("muon/adamw_clip.json")) {
    if (entry["name"] == "mixed") settings = entry;
  }
  OptimizerOptions options;
  options.routes.matrix = Route::adamw;
  GroupRule muon;
  muon.pattern = "w", muon.route = Route::muon;
  options.routes.rules = {muon};
  options.adamw = {.beta1 = settings["adamw"]["betas"][0],
                   .beta2 = settings["adamw"]["betas"][1],
                   .weight_decay = settings["adamw"]["weight_decay"]};
  options.muon = torch_muon(UpdateScale::match_rms_adamw);
  options.muon.momentum = settings["muon"]["momentum"];
  const double rate = settings["adamw"]["lr"];
  options.muon_rate = settings["muon"]["lr"].get<double>() / rate;
  options.muon_weight_decay = settings["muon"]["weight_decay"];
  std::map<std::string, at::Tensor> parameters;
  for (const std::string name : {"bias", "emb", "w"}) {
    parameters[name] = golden["init." + name].clone().requires_grad_(true);
  }
  Optimizer optimizer(parameters, options);
  for (int64_t step = 0; step < 10; ++step) {
    for (auto& [name, weight] : parameters) weight.mutable_grad() = golden["micro_grads." + name][step].mean(0);
    optimizer.step(rate, clip_coefficient(global_norm(optimizer.gradients()), settings["clip_max_norm"]));
  }
  EXPECT_TRUE(test::close(parameters["bias"].detach(), golden["mixed.step10.bias"], 1e-6, 1e-6));
  EXPECT_TRUE(test::close(parameters["emb"].detach(), golden["mixed.step10.emb"], 1e-6, 1e-6));
  // The iteration of both runs is bf16.
  EXPECT_TRUE(test::close(parameters["w"].detach(), golden["mixed.step10.w"], 3e-3, 0));
}

TEST(OptimizerWithMuon, ContinuesWithTheSameBitsFromItsState) {
  auto whole = small_model(), first = copy_of(whole);
  const OptimizerOptions options = muon_for_matrices();
  std::vector<std::map<std::string, at::Tensor>> gradients(4);
  for (auto& step : gradients) {
    for (const auto& [name, weight] : whole) step[name] = at::randn(weight.sizes());
  }
  const auto run = [&](Optimizer& optimizer, std::map<std::string, at::Tensor>& weights, size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      for (auto& [name, weight] : weights) weight.mutable_grad() = gradients[i][name];
      optimizer.step(0.01, 0.9);
    }
  };
  Optimizer uninterrupted(whole, options);
  run(uninterrupted, whole, 0, 4);
  Optimizer before(first, options);
  run(before, first, 0, 2);
  auto second = copy_of(first);
  std::map<std::string, at::Tensor> state;
  for (const auto& [name, tensor] : before.state()) state[name] = tensor.clone();
  Optimizer after(second, options);
  after.load_state(state, before.steps());
  run(after, second, 2, 4);
  for (const auto& [name, weight] : whole) EXPECT_TRUE(test::same_bits(weight, second[name])) << name;
  for (const auto& [name, tensor] : uninterrupted.state()) EXPECT_TRUE(test::same_bits(tensor, after.state()[name]));
}

TEST(OptimizerWithMuon, AGradientThatIsNotFiniteChangesNothing) {
  auto parameters = small_model();
  Optimizer optimizer(parameters, muon_for_matrices());
  for (auto& [name, weight] : parameters) weight.mutable_grad() = at::randn(weight.sizes());
  parameters["layers.0.up.weight"].mutable_grad()[0][0] = std::numeric_limits<float>::quiet_NaN();
  const auto before = copy_of(parameters);
  EXPECT_THROW(optimizer.step(0.01, 1.0), Error);
  for (const auto& [name, weight] : parameters) EXPECT_TRUE(test::same_bits(weight, before.at(name))) << name;
  EXPECT_EQ(optimizer.steps(), 0);
}

}  // namespace
}  // namespace pacer::optim
