#include "pacer/optim/adamw.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"
#include "pacer/optim/clip.h"
#include "pacer/optim/optimizer.h"
#include "pacer/optim/schedule.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

// The stored runs used a chained scheduler, which multiplies every rate after the warm-up by 2 / (1 + cos(pi / (T -
// w))) (tests/golden/checkpoint_layouts/README.md); the update itself takes whatever rate it is given.
double as_run(const Schedule& schedule, int64_t step) {
  const double tail = static_cast<double>(schedule.steps - schedule.warmup);
  return schedule.at(step) * (step <= schedule.warmup ? 1.0 : 2.0 / (1.0 + std::cos(std::numbers::pi / tail)));
}

class Bf16Masters : public ::testing::TestWithParam<std::string> {};

TEST_P(Bf16Masters, FiveStepsAsRecorded) {
  const test::GoldenTensors golden("checkpoint_layouts/bf16_master_optimizer.safetensors");
  const auto settings = test::golden_json("checkpoint_layouts/bf16_master_optimizer.json");
  const int64_t total = settings["total_steps"].get<int64_t>();
  const Schedule schedule{
      .peak = settings["lr"].get<double>(),
      .steps = total,
      .warmup = static_cast<int64_t>(settings["warmup_ratio"].get<double>() * static_cast<double>(total))};
  const AdamWOptions options{.beta1 = settings["betas"][0],
                             .beta2 = settings["betas"][1],
                             .epsilon = settings["eps"],
                             .weight_decay = settings["weight_decay"]};
  const double limit = GetParam() == "specforge" ? settings["specforge_max_grad_norm"].get<double>() : 0.0;

  std::map<std::string, at::Tensor> masters;
  for (const std::string name : {"bias", "weight"}) {
    masters[name] = golden["bf16opt.init." + name].to(at::kFloat).contiguous().requires_grad_(true);
  }
  Optimizer optimizer(masters, options, {});
  for (int64_t step = 1; step <= 5; ++step) {
    for (auto& [name, master] : masters) {
      master.mutable_grad() = golden["bf16opt.grad" + std::to_string(step - 1) + "." + name].to(at::kFloat);
    }
    optimizer.step(as_run(schedule, step), clip_coefficient(global_norm(optimizer.gradients()), limit));
  }
  for (auto& [name, master] : masters) {
    const at::Tensor expected = golden["bf16opt." + GetParam() + ".master5." + name];
    EXPECT_TRUE(test::close(master, expected, 1e-6, 1e-6)) << name;
    EXPECT_TRUE(test::same_bits(master.detach().to(at::kBFloat16), golden["bf16opt." + GetParam() + ".step5." + name]))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Bf16Masters, ::testing::Values("deepspec", "specforge"));

struct Trial {
  at::Tensor weight, gradient, first, second;
};

Trial random_trial(int64_t n) {
  return {at::randn({n}), at::randn({n}), at::randn({n}) * 0.1, at::randn({n}).square() * 0.01};
}

constexpr AdamWOptions kOptions{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1};

TEST(AdamW, MatchesAWorkedExample) {
  // First step: m / (1 - beta1) = g and v / (1 - beta2) = g^2, so the weight moves by rate * sign(g).
  at::Tensor weight = at::full({2}, 1.0f), first = at::zeros({2}), second = at::zeros({2});
  at::Tensor gradient = at::full({2}, 4.0f);
  gradient[1] = -0.5f;
  adamw_update(weight, gradient, 1.0, first, second, 1, 0.01, {.epsilon = 0});
  EXPECT_NEAR(weight[0].item<double>(), 0.99, 1e-7);
  EXPECT_NEAR(weight[1].item<double>(), 1.01, 1e-7);
  EXPECT_NEAR(first[0].item<double>(), 0.4, 1e-7);
  EXPECT_NEAR(second[1].item<double>(), 0.25 * 0.001, 1e-9);
}

TEST(AdamW, AgreesWithTheFusedKernelThatOtherDevicesUse) {
  Trial own = random_trial(1003);
  Trial library{own.weight.clone(), own.gradient * 0.5, own.first.clone(), own.second.clone()};
  adamw_update(own.weight, own.gradient, 0.5, own.first, own.second, 7, 0.02, kOptions);
  at::_fused_adamw_(library.weight, library.gradient, library.first, library.second, {}, at::full({}, 7.0f), 0.02,
                    kOptions.beta1, kOptions.beta2, kOptions.weight_decay, kOptions.epsilon, false, false);
  EXPECT_TRUE(test::close(own.weight, library.weight, 1e-6, 1e-5));
  EXPECT_TRUE(test::close(own.first, library.first, 1e-7, 1e-6));
  EXPECT_TRUE(test::close(own.second, library.second, 1e-7, 1e-6));
}

TEST(AdamW, BitsDoNotDependOnThreadsNorOnThePlaceInTheTensor) {
  const int threads = at::get_num_threads();
  Trial one = random_trial(100'003);
  Trial two{one.weight.clone(), one.gradient, one.first.clone(), one.second.clone()};
  Trial slice{one.weight.slice(0, 5, 1000).clone(), one.gradient.slice(0, 5, 1000).clone(),
              one.first.slice(0, 5, 1000).clone(), one.second.slice(0, 5, 1000).clone()};
  at::set_num_threads(1);
  adamw_update(one.weight, one.gradient, 0.7, one.first, one.second, 3, 0.01, kOptions);
  at::set_num_threads(2);
  adamw_update(two.weight, two.gradient, 0.7, two.first, two.second, 3, 0.01, kOptions);
  adamw_update(slice.weight, slice.gradient, 0.7, slice.first, slice.second, 3, 0.01, kOptions);
  at::set_num_threads(threads);
  EXPECT_TRUE(test::same_bits(one.weight, two.weight));
  EXPECT_TRUE(test::same_bits(one.second, two.second));
  EXPECT_TRUE(test::same_bits(one.weight.slice(0, 5, 1000), slice.weight));
}

TEST(AdamW, RefusesWhatIsNotF32) {
  at::Tensor weight = at::ones({2}), first = at::zeros({2}), second = at::zeros({2});
  EXPECT_THROW(adamw_update(weight, at::ones({2}, at::kBFloat16), 1, first, second, 1, 0.1, {}), Error);
  EXPECT_THROW(adamw_update(weight, at::ones({3}), 1, first, second, 1, 0.1, {}), Error);
  EXPECT_THROW(adamw_update(weight, at::ones({2}), 1, first, second, 0, 0.1, {}), Error);
}

}  // namespace
}  // namespace pacer::optim
