// The fused npu:: operators: the real schemas, values and gradients of the plain formulas, and the door's form of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/triu.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Tensors&)>;

at::Tensor normal(std::vector<int64_t> sizes, uint64_t seed) {
  at::Generator random = at::globalContext().defaultGenerator(c10::kCPU).clone();
  random.set_current_seed(seed);
  return at::randn(sizes, random);
}

// Calls a npu:: operator as a caller does that looks its schema up: arguments by name, the rest as the schema says.
at::Tensor call(const std::string& name, const std::vector<std::pair<std::string, c10::IValue>>& given) {
  const auto op = c10::Dispatcher::singleton().findSchema({"npu::" + name, ""});
  if (!op) throw std::runtime_error("no operator " + name);
  torch::jit::Stack stack;
  size_t used = 0;
  for (const c10::Argument& argument : op->schema().arguments()) {
    const auto found =
        std::find_if(given.begin(), given.end(), [&](const auto& g) { return g.first == argument.name(); });
    used += found != given.end();
    stack.push_back(found != given.end() ? found->second : argument.default_value().value());
  }
  EXPECT_EQ(used, given.size());
  op->callBoxed(&stack);
  return stack[0].toTensor();
}

// The fused form on the device against the plain one on the CPU: value and the gradient of every input.
void expect_same(const Function& fused, const Function& plain, const Tensors& inputs) {
  Tensors there, host;
  for (const at::Tensor& input : inputs) {
    there.push_back(input.to(npu()).requires_grad_(true));
    host.push_back(input.clone().requires_grad_(true));
  }
  const at::Tensor a = fused(there), b = plain(host);
  ASSERT_EQ(a.sizes(), b.sizes());
  const at::Tensor direction = normal(b.sizes().vec(), 77);
  (a * direction.to(npu())).sum().backward();
  (b * direction).sum().backward();
  const auto near = [](const at::Tensor& x, const at::Tensor& y) {
    return (x.cpu() - y).norm().item<float>() <= 1e-5f * y.norm().item<float>();
  };
  EXPECT_TRUE(near(a.detach(), b.detach()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    ASSERT_TRUE(there[i].grad().defined()) << i;
    EXPECT_TRUE(near(there[i].grad(), host[i].grad())) << "gradient of input " << i;
  }
}

TEST(SimnpuFused, RmsNorm) {
  const auto plain = [](const Tensors& t) { return t[0] * at::rsqrt(t[0].square().mean(-1, true) + 1e-3) * t[1]; };
  const Tensors inputs = {normal({3, 5, 16}, 1), normal({16}, 2)};
  expect_same(
      [](const Tensors& t) { return call("npu_rms_norm", {{"input", t[0]}, {"gamma", t[1]}, {"epsilon", 1e-3}}); },
      plain, inputs);
  expect_same([](const Tensors& t) { return plugin().operators->rms_norm(t[0], t[1], 1e-3); }, plain, inputs);
}

TEST(SimnpuFused, Swiglu) {
  const auto plain = [](const Tensors& t) {
    const Tensors halves = t[0].chunk(2, -1);
    return at::silu(halves[0]) * halves[1];
  };
  expect_same([](const Tensors& t) { return call("npu_swiglu", {{"input", t[0]}}); }, plain, {normal({4, 10}, 3)});
  expect_same([](const Tensors& t) { return plugin().operators->swiglu(t[0]); }, plain, {normal({2, 3, 8}, 4)});
}

TEST(SimnpuFused, RotaryMul) {
  const auto plain = [](const Tensors& t) {
    const Tensors halves = t[0].chunk(2, -1);
    return t[0] * t[1] + at::cat({-halves[1], halves[0]}, -1) * t[2];
  };
  expect_same([](const Tensors& t) { return call("npu_rotary_mul", {{"input", t[0]}, {"r1", t[1]}, {"r2", t[2]}}); },
              plain, {normal({2, 3, 5, 8}, 5), normal({1, 1, 5, 8}, 6), normal({1, 1, 5, 8}, 7)});
}

// [B, N, S, D] with fewer key heads; hidden: true where a key does not take part.
at::Tensor plain_attention(const Tensors& t, const at::Tensor& hidden, double scale) {
  const int64_t groups = t[0].size(1) / t[1].size(1);
  const at::Tensor k = t[1].repeat_interleave(groups, 1), v = t[2].repeat_interleave(groups, 1);
  const at::Tensor scores = at::matmul(t[0], k.transpose(-1, -2)) * scale;
  return at::matmul(at::softmax(scores.masked_fill(hidden, -std::numeric_limits<float>::infinity()), -1), v);
}

TEST(SimnpuFused, AttentionWithFewerKeyHeadsAndAMask) {
  const Tensors inputs = {normal({2, 6, 7, 8}, 8), normal({2, 3, 7, 8}, 9), normal({2, 3, 7, 8}, 10)};
  const at::Tensor hidden = at::triu(at::ones({7, 7}), 1).to(at::kBool);
  const auto plain = [&](const Tensors& t) { return plain_attention(t, hidden, 0.3); };
  expect_same(
      [&](const Tensors& t) {
        return call("npu_fusion_attention", {{"query", t[0]},
                                             {"key", t[1]},
                                             {"value", t[2]},
                                             {"head_num", int64_t{6}},
                                             {"input_layout", "BNSD"},
                                             {"scale", 0.3},
                                             {"sparse_mode", int64_t{1}},
                                             {"atten_mask", hidden.to(npu())}});
      },
      plain, inputs);
  // The door's mask says what is seen, the operator's what is not.
  const at::Tensor visible = at::tril(at::ones({7, 7})).to(at::kBool);
  expect_same([&](const Tensors& t) { return plugin().operators->attention(t[0], t[1], t[2], visible.to(npu()), 0.3); },
              plain, inputs);
}

TEST(SimnpuFused, AttentionInTheOtherLayouts) {
  const at::Tensor nothing = at::ones({1}).to(at::kBool).logical_not();
  for (const std::string layout : {"BSH", "SBH", "BSND"}) {
    const auto heads_first = [&](const at::Tensor& x, int64_t heads) {
      if (layout == "BSND") return x.transpose(1, 2);
      const at::Tensor b = layout == "BSH" ? x : x.transpose(0, 1);
      return b.view({b.size(0), b.size(1), heads, 8}).transpose(1, 2);
    };
    const auto plain = [&](const Tensors& t) {
      const at::Tensor y =
          plain_attention({heads_first(t[0], 4), heads_first(t[1], 2), heads_first(t[2], 2)}, nothing, 1.0);
      if (layout == "BSND") return y.transpose(1, 2).contiguous();
      const at::Tensor flat = y.transpose(1, 2).reshape({2, 5, 32});
      return layout == "BSH" ? flat : flat.transpose(0, 1).contiguous();
    };
    const auto sizes = [&](int64_t heads) {
      return layout == "BSND"  ? std::vector<int64_t>{2, 5, heads, 8}
             : layout == "BSH" ? std::vector<int64_t>{2, 5, heads * 8}
                               : std::vector<int64_t>{5, 2, heads * 8};
    };
    expect_same(
        [&](const Tensors& t) {
          return call(
              "npu_fusion_attention",
              {{"query", t[0]}, {"key", t[1]}, {"value", t[2]}, {"head_num", int64_t{4}}, {"input_layout", layout}});
        },
        plain, {normal(sizes(4), 11) * 0.3, normal(sizes(2), 12), normal(sizes(2), 13)});
  }
}

TEST(SimnpuFused, AttentionInABand) {
  const Tensors inputs = {normal({1, 2, 6, 4}, 14), normal({1, 2, 6, 4}, 15), normal({1, 2, 6, 4}, 16)};
  const at::Tensor ones = at::ones({6, 6});
  const at::Tensor hidden = (at::triu(ones, 1) + at::tril(ones, -3)).to(at::kBool);  // two before, none behind
  expect_same(
      [&](const Tensors& t) {
        return call("npu_fusion_attention", {{"query", t[0]},
                                             {"key", t[1]},
                                             {"value", t[2]},
                                             {"head_num", int64_t{2}},
                                             {"input_layout", "BNSD"},
                                             {"pre_tockens", int64_t{2}},
                                             {"next_tockens", int64_t{0}}});
      },
      [&](const Tensors& t) { return plain_attention(t, hidden, 1.0); }, inputs);
}

TEST(SimnpuFused, IsOneKernelAndObeysTheRules) {
  const at::Tensor x = normal({4, 16}, 17).to(npu()), weight = at::ones({16}, npu());
  synchronize();
  const int64_t before = switch_value("launches");
  plugin().operators->rms_norm(x, weight, 1e-6);
  EXPECT_EQ(switch_value("launches") - before, 3) << "two results, one kernel";
  EXPECT_THAT(message_of([&] { plugin().operators->swiglu(x.to(at::kDouble)); }),
              HasSubstr("npu::npu_swiglu failed, detail:EZ1001"));
  EXPECT_THAT(message_of([&] {
                call("npu_fusion_attention",
                     {{"query", x}, {"key", x}, {"value", x}, {"head_num", int64_t{1}}, {"input_layout", "TND"}});
              }),
              HasSubstr("the layout 'TND' is not simulated"));
}

}  // namespace
}  // namespace pacer::simnpu
