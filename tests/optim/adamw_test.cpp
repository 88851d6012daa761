#include "pacer/optim/adamw.h"

#include <cmath>
#include <map>
#include <numbers>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
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

// A recorded bf16 run rounds after every operation of a step, ours once a step: each may put a weight half an ulp, of
// the larger of its first and last value, beside the other.
::testing::AssertionResult within_roundings(const at::Tensor& weight, const at::Tensor& stored, const at::Tensor& start,
                                            int64_t steps) {
  const at::Tensor ulp = at::maximum(start.abs(), stored.to(at::kFloat).abs()) * std::ldexp(1.0, -7);
  const at::Tensor distance = (weight.to(at::kFloat) - stored.to(at::kFloat)).abs() / ulp;
  if (distance.max().item<double>() <= static_cast<double>(steps)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << distance.max().item<double>() << " ulps after " << steps << " steps";
}

// One run of the golden file: gradients are means over micro-batches, clipped together; `bias` decays never.
class GoldenAdamW : public ::testing::TestWithParam<int> {};

TEST_P(GoldenAdamW, TenStepsAsRecorded) {
  const test::GoldenTensors golden("muon/adamw_clip.safetensors");
  const std::string run = "adamw" + std::to_string(GetParam());
  nlohmann::json settings;
  for (const auto& entry : test::golden_json("muon/adamw_clip.json")) {
    if (entry["name"] == run) settings = entry;
  }
  const at::ScalarType dtype = settings["param_dtype"] == "bf16" ? at::kBFloat16 : at::kFloat;
  const bool amsgrad = settings.value("amsgrad", false);
  struct Entry {
    at::Tensor weight, first, second, largest;
    int64_t steps = 0;
  };
  std::map<std::string, Entry> entries;
  for (const std::string name : {"bias", "emb", "w"}) {
    Entry& e = entries[name];
    e.weight = golden["init." + name].to(dtype);
    e.first = at::zeros_like(e.weight), e.second = at::zeros_like(e.weight);
    if (amsgrad) e.largest = at::zeros_like(e.weight);
  }
  for (int64_t step = 1; step <= 10; ++step) {
    std::map<std::string, at::Tensor> gradients;
    for (auto& [name, e] : entries) {
      const auto& skip = settings["skipped_grad"];
      if (!skip.is_null() && skip["param"] == name && skip["step"] == step) continue;
      const int64_t used = settings["accumulation"];
      gradients[name] = golden["micro_grads." + name][step - 1].slice(0, 0, used).mean(0).to(dtype).to(at::kFloat);
    }
    double clip = 1;
    if (!settings["clip_max_norm"].is_null()) {
      const double norm = global_norm(gradients);
      const double stored = settings["norms_before_clip"][static_cast<size_t>(step - 1)];
      EXPECT_NEAR(norm / stored, 1, 1e-6) << step;
      clip = clip_coefficient(norm, settings["clip_max_norm"]);
    }
    for (auto& [name, gradient] : gradients) {
      Entry& e = entries[name];
      AdamWOptions options{.beta1 = settings["betas"][0], .beta2 = settings["betas"][1], .epsilon = settings["eps"]};
      if (name != "bias") options.weight_decay = settings["weight_decay"];
      adamw_update(e.weight, gradient, clip, e.first, e.second, ++e.steps,
                   settings["lr_per_step"][static_cast<size_t>(step - 1)], options, e.largest);
    }
    for (auto& [name, e] : entries) {
      const std::string stored = run + ".step" + std::to_string(step) + "." + name;
      if (!golden.has(stored)) continue;
      if (dtype == at::kFloat) {
        EXPECT_TRUE(test::close(e.weight, golden[stored], 1e-6, 1e-6)) << stored;
      } else {
        EXPECT_TRUE(within_roundings(e.weight, golden[stored], golden["init." + name], step)) << stored;
      }
    }
  }
  for (auto& [name, e] : entries) {
    EXPECT_EQ(static_cast<double>(e.steps), golden[run + ".step_count." + name].item<double>()) << name;
    const double bound = dtype == at::kFloat ? 1e-6 : 2e-2;
    EXPECT_TRUE(test::close_l2(e.first, golden[run + ".exp_avg." + name], bound)) << name;
    EXPECT_TRUE(test::close_l2(e.second, golden[run + ".exp_avg_sq." + name], bound)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenAdamW, ::testing::Range(0, 6));

// A second implementation, on masters and gradients in both dtypes.
TEST(AdamWOfGroups, TenStepsAsRecorded) {
  const test::GoldenTensors golden("muon/adamw_clip.safetensors");
  nlohmann::json settings;
  for (const auto& entry : test::golden_json("muon/adamw_clip.json")) {
    if (entry["name"] == "dmuon_adamw") settings = entry;
  }
  const AdamWOptions options{.beta1 = settings["betas"][0],
                             .beta2 = settings["betas"][1],
                             .epsilon = settings["eps"],
                             .weight_decay = settings["weight_decay"]};
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const std::string run = dtype == at::kFloat ? "dmuon_adamw.f32" : "dmuon_adamw.bf16";
    for (const std::string name : {"emb", "w"}) {
      at::Tensor weight = golden["init." + name].to(dtype);
      at::Tensor first = at::zeros_like(weight), second = at::zeros_like(weight);
      for (int64_t step = 1; step <= 10; ++step) {
        adamw_update(weight, golden["micro_grads." + name][step - 1][0].to(dtype), 1.0, first, second, step,
                     settings["lr_per_step"][static_cast<size_t>(step - 1)], options);
        const std::string stored = run + ".step" + std::to_string(step) + "." + name;
        if (!golden.has(stored)) continue;
        if (dtype == at::kFloat) {
          EXPECT_TRUE(test::close(weight, golden[stored], 1e-6, 1e-6)) << stored;
        } else {
          EXPECT_TRUE(within_roundings(weight, golden[stored], golden["init." + name], step)) << stored;
        }
      }
    }
  }
}

TEST(AdamW, LeavesATensorWithoutElementsAlone) {
  at::Tensor weight = at::zeros({0}), first = at::zeros({0}), second = at::zeros({0});
  EXPECT_NO_THROW(adamw_update(weight, at::zeros({0}), 1, first, second, 3, 0.1, {}));
}

TEST(AdamW, ComputesBf16InF32) {
  at::Tensor weight = at::randn({1003}).to(at::kBFloat16), first = at::randn({1003}).to(at::kBFloat16);
  at::Tensor second = at::randn({1003}).square().to(at::kBFloat16);
  const at::Tensor gradient = at::randn({1003}).to(at::kBFloat16);
  const auto wide = [](const at::Tensor& t) { return t.to(at::kFloat).clone(); };
  at::Tensor w = wide(weight), m = wide(first), v = wide(second);
  adamw_update(w, wide(gradient), 0.5, m, v, 3, 0.01, kOptions);
  adamw_update(weight, gradient, 0.5, first, second, 3, 0.01, kOptions);
  EXPECT_TRUE(test::same_bits(weight, w.to(at::kBFloat16)));
  EXPECT_TRUE(test::same_bits(first, m.to(at::kBFloat16)));
  EXPECT_TRUE(test::same_bits(second, v.to(at::kBFloat16)));
}

TEST(AdamW, RefusesTensorsThatDoNotFit) {
  at::Tensor weight = at::ones({2}), first = at::zeros({2}), second = at::zeros({2});
  EXPECT_THROW(adamw_update(weight, at::ones({2}, at::kLong), 1, first, second, 1, 0.1, {}), Error);
  at::Tensor half = at::zeros({2}, at::kBFloat16);
  EXPECT_THROW(adamw_update(weight, at::ones({2}), 1, half, second, 1, 0.1, {}), Error);
  EXPECT_THROW(adamw_update(weight, at::ones({3}), 1, first, second, 1, 0.1, {}), Error);
  EXPECT_THROW(adamw_update(weight, at::ones({2}), 1, first, second, 0, 0.1, {}), Error);
}

}  // namespace
}  // namespace pacer::optim
