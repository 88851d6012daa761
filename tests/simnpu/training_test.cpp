// Ten AdamW steps of a small transformer: every loss and every weight has the CPU's bits, also with delayed kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/triu.h>
#include <ATen/ops/zeros_like.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using Tensors = std::vector<at::Tensor>;
constexpr int64_t kVocabulary = 61, kWidth = 32, kHeads = 4, kLength = 24;

struct Training {
  std::vector<at::Tensor> losses, weights;
};

at::Tensor normal(std::vector<int64_t> sizes, at::Generator& random, double scale) {
  return at::randn(sizes, random) * scale;
}

at::Tensor attention(const at::Tensor& x, const at::Tensor& packed, const at::Tensor& out, const at::Tensor& mask) {
  const Tensors parts =
      at::linear(x, packed).view({2, kLength, 3, kHeads, kWidth / kHeads}).permute({2, 0, 3, 1, 4}).unbind(0);
  const at::Tensor scores = at::matmul(parts[0], parts[1].transpose(-1, -2)) / std::sqrt(8.0) + mask;
  const at::Tensor mixed = at::matmul(at::softmax(scores, -1), parts[2]).transpose(1, 2).reshape({2, kLength, kWidth});
  return at::linear(mixed, out);
}

Training train(c10::Device device) {
  at::Generator random = at::globalContext().defaultGenerator(c10::kCPU).clone();
  random.set_current_seed(3);
  Tensors weights = {normal({kVocabulary, kWidth}, random, 0.1),
                     normal({3 * kWidth, kWidth}, random, 0.2),
                     normal({kWidth, kWidth}, random, 0.2),
                     normal({4 * kWidth, kWidth}, random, 0.2),
                     normal({kWidth, 4 * kWidth}, random, 0.2),
                     at::ones({kWidth}),
                     at::ones({kWidth})};
  const at::Tensor tokens = at::randint(kVocabulary, {2, kLength + 1}, random, at::TensorOptions(at::kLong)).to(device);
  const at::Tensor mask = at::triu(at::full({kLength, kLength}, -1e9), 1).to(device);
  Tensors first, second, steps;
  for (at::Tensor& weight : weights) {
    weight = weight.to(device).requires_grad_(true);
    first.push_back(at::zeros_like(weight.detach()));
    second.push_back(at::zeros_like(weight.detach()));
    steps.push_back(at::full({}, 0.0f, device));
  }
  Training run;
  for (int step = 0; step < 10; ++step) {
    at::Tensor x = at::embedding(weights[0], tokens.slice(1, 0, kLength));
    x = x + attention(at::layer_norm(x, {kWidth}, weights[5]), weights[1], weights[2], mask);
    x = x + at::linear(at::silu(at::linear(at::layer_norm(x, {kWidth}, weights[6]), weights[3])), weights[4]);
    const at::Tensor logits = at::linear(x, weights[0]).view({-1, kVocabulary});  // tied
    const at::Tensor loss = at::cross_entropy_loss(logits, tokens.slice(1, 1).reshape({-1}));
    loss.backward();
    Tensors values, grads;
    for (const at::Tensor& weight : weights) values.push_back(weight.detach()), grads.push_back(weight.grad());
    const at::Tensor total = at::stack(at::_foreach_norm(grads)).norm();
    for (const at::Tensor& grad : grads) grad.mul_((1.0 / (total + 1e-6)).clamp_max(1.0));
    for (at::Tensor& count : steps) count.add_(1);
    at::_fused_adamw_(values, grads, first, second, {}, steps, 0.01, 0.9, 0.95, 0.01, 1e-8, false, false);
    for (const at::Tensor& weight : weights) weight.mutable_grad().reset();
    run.losses.push_back(loss.detach().cpu());
  }
  for (const at::Tensor& weight : weights) run.weights.push_back(weight.detach().cpu());
  return run;
}

void expect_same(const Training& a, const Training& b) {
  for (size_t i = 0; i < a.losses.size(); ++i) EXPECT_TRUE(same_bits(a.losses[i], b.losses[i])) << "step " << i;
  for (size_t i = 0; i < a.weights.size(); ++i) EXPECT_TRUE(same_bits(a.weights[i], b.weights[i])) << "weight " << i;
}

TEST(SimnpuTraining, ATransformerTrainsWithTheCpusBits) {
  const c10::Device device = npu();
  const Training host = train(c10::kCPU);
  EXPECT_LT(host.losses.back().item<float>(), 0.8f * host.losses.front().item<float>()) << "it must learn something";
  expect_same(train(device), host);
}

TEST(SimnpuTraining, DelaysChangeNothing) {
  const c10::Device device = npu(1);
  const Training host = train(c10::kCPU);
  for (const int64_t seed : {1, 2, 3}) {
    const SwitchScope delays("delay_seed", seed);
    expect_same(train(device), host);
  }
}

}  // namespace
}  // namespace pacer::simnpu
