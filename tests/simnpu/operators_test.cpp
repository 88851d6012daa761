// Operators on the device give the CPU's bits, and run without waiting where their shapes are known.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <ATen/Context.h>
#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/linalg_cholesky.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/masked_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/native_dropout.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/split.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/tril.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using Tensors = std::vector<at::Tensor>;
using at::indexing::Slice;

struct Case {
  const char* name;
  Tensors (*run)(const Tensors& in, c10::Device device);
  bool waits = false;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// [8, 12] twice, [12, 6], [2, 8, 12], indices 0..7 of [5], bf16 [8, 12]
Tensors inputs() {
  at::Generator random = at::globalContext().defaultGenerator(c10::kCPU).clone();
  random.set_current_seed(11);
  const auto normal = [&](std::vector<int64_t> sizes) { return at::randn(sizes, random); };
  return {normal({8, 12}),
          normal({8, 12}),
          normal({12, 6}),
          normal({2, 8, 12}),
          at::tensor({3, 0, 7, 3, 5}, at::kLong),
          normal({8, 12}).to(at::kBFloat16)};
}

const Case kCases[] = {
    {"factories",
     [](const Tensors&, c10::Device d) -> Tensors {
       return {at::zeros({3, 2}, d), at::ones({2}, at::TensorOptions(d).dtype(at::kLong)), at::full({4}, 2.5f, d),
               at::arange(7, at::TensorOptions(d)), at::arange(0, 1, 0.25, at::TensorOptions(d).dtype(at::kFloat))};
     }},
    {"products",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {at::mm(t[0], t[2]), at::addmm(t[0].slice(1, 0, 6), t[1], t[2], 0.5, 2),
               at::bmm(t[3], t[3].transpose(1, 2)), at::linear(t[5], t[5])};
     }},
    {"views",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {t[0].slice(1, 2, 9, 3),  t[0].t(),
               t[3].select(1, 4),       t[0][3].expand({5, 12}),
               t[3].permute({2, 0, 1}), t[0].unfold(1, 4, 2),
               t[3].reshape({16, 12}),  t[0].t().contiguous(),
               t[3].flatten(),          t[0].unsqueeze(1)};
     }},
    {"writes_through_views",
     [](const Tensors& t, c10::Device) -> Tensors {
       at::Tensor x = t[0].clone();
       x.t().select(0, 3).fill_(9);
       x.slice(0, 1, 6, 2).mul_(2).add_(t[1].slice(0, 0, 3));
       x.index({Slice(), Slice(4, 6)}).copy_(t[1].index({Slice(), Slice(0, 2)}));
       return {x};
     }},
    {"pointwise",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {t[0] * t[1] + 3,
               t[0].exp(),
               at::sigmoid(t[0]),
               at::rsqrt(at::abs(t[0]) + 1),
               t[0].clamp(-1, 1),
               t[0] > t[1],
               at::isnan(t[0]),
               t[0].to(at::kBFloat16),
               t[5].to(at::kFloat),
               t[0].tanh(),
               -t[0],
               t[0].pow(2),
               at::where(t[0] > 0, t[0], t[1]),
               t[5] * t[5]};
     }},
    {"silu",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {at::silu(t[0]), at::silu_backward(t[1], t[0]), at::silu(t[5]), at::silu_backward(t[5], t[5])};
     }},
    {"in_place",
     [](const Tensors& t, c10::Device) -> Tensors {
       at::Tensor x = t[0].clone();
       x.mul_(2).add_(t[1]).sub_(1).div_(3).exp_().clamp_max_(4).addcmul_(t[0], t[1], 0.5).lerp_(t[1], 0.25);
       return {x, x.zero_().fill_(3)};
     }},
    {"reductions",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {t[0].sum(),
               t[0].sum(1),
               t[0].mean(-1, true),
               std::get<0>(t[0].max(1)),
               std::get<1>(t[0].max(1)),
               at::argmax(t[0], 1),
               t[0].norm(),
               at::logsumexp(t[0], 1),
               at::cumsum(t[0], 1),
               t[0].var(1),
               t[0].amax(0),
               (t[0] > 0).sum(),
               (t[0] > 0).all(),
               at::sum(t[5], 0)};
     }},
    {"softmax",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {at::softmax(t[0], -1), at::log_softmax(t[0], 1), at::softmax(t[5], -1)};
     }},
    {"sorting",
     [](const Tensors& t, c10::Device) -> Tensors {
       const auto top = at::topk(t[0], 3);
       const auto sorted = at::sort(t[0], 1, true);
       return {std::get<0>(top), std::get<1>(top), std::get<0>(sorted), std::get<1>(sorted)};
     }},
    {"indices",
     [](const Tensors& t, c10::Device) -> Tensors {
       at::Tensor added = at::zeros({8, 12}, t[0].device());
       added.index_add_(0, t[4], t[1].slice(0, 0, 5));
       at::Tensor put = t[0].clone();
       put.index_put_({t[4]}, t[1].slice(0, 0, 5));
       const at::Tensor columns = at::argmax(t[0], 1, true);
       return {at::index_select(t[0], 0, t[4]),
               t[0].index({t[4]}),
               at::gather(t[0], 1, columns),
               at::scatter(t[0], 1, columns, 5),
               added,
               put,
               at::embedding(t[0], t[4]),
               t[0].index({t[4], t[4]})};
     }},
    {"joining",
     [](const Tensors& t, c10::Device) -> Tensors {
       Tensors all = {at::cat({t[0], t[1]}, 1), at::stack({t[0], t[1]}), at::tril(t[0]),     t[0].triu(1),
                      t[0].flip({1}),           t[0].repeat({2, 1}),     t[0].roll({3}, {1})};
       for (const at::Tensor& part : at::split(t[0], 5, 1)) all.push_back(part * 2);
       return all;
     }},
    {"lists",
     [](const Tensors& t, c10::Device) -> Tensors {
       Tensors sums = at::_foreach_add({t[0], t[2]}, 1.5), norms = at::_foreach_norm({t[0], t[2]});
       sums.insert(sums.end(), norms.begin(), norms.end());
       return sums;
     }},
    {"fused_adamw",
     [](const Tensors& t, c10::Device d) -> Tensors {
       Tensors weight = {t[0].clone()}, grad = {t[1]}, first = {at::zeros_like(t[0])}, second = {at::zeros_like(t[0])};
       Tensors step = {at::full({}, 3.0f, d)};
       at::_fused_adamw_(weight, grad, first, second, {}, step, 0.1, 0.9, 0.99, 0.01, 1e-8, false, false);
       return {weight[0], first[0], second[0]};
     }},
    {"layer_norm",
     [](const Tensors& t, c10::Device) -> Tensors {
       const auto [y, mean, rstd] = at::native_layer_norm(t[0], {12}, t[1][0], t[1][1], 1e-5);
       return {y, mean, rstd};
     }},
    {"cholesky",
     [](const Tensors& t, c10::Device) -> Tensors {
       return {at::linalg_cholesky(at::mm(t[0], t[0].t()) + at::ones({8}, t[0].device()).diag())};
     }},
    {"data_dependent",
     [](const Tensors& t, c10::Device) -> Tensors {
       const auto unique = at::_unique2(t[4], true, true, true);
       return {at::nonzero(t[0] > 0),  at::masked_select(t[0], t[0] > 0),
               t[0].index({t[0] > 0}), std::get<0>(unique),
               std::get<1>(unique),    std::get<2>(unique)};
     },
     true},
};

class SimnpuOperators : public ::testing::TestWithParam<Case> {};

TEST_P(SimnpuOperators, GiveTheBitsOfTheCpu) {
  const c10::Device device = npu();
  const Tensors host = inputs();
  Tensors there;
  for (const at::Tensor& tensor : host) there.push_back(tensor.to(device));
  const int64_t waits = switch_value("synchronous_launches");
  const Tensors results = GetParam().run(there, device);
  EXPECT_EQ(switch_value("synchronous_launches") > waits, GetParam().waits);
  const Tensors expected = GetParam().run(host, c10::kCPU);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].device(), device) << i;
    EXPECT_EQ(results[i].strides(), expected[i].strides()) << i;
    EXPECT_TRUE(same_bits(results[i], expected[i])) << i << "\n" << results[i].cpu() << "\n" << expected[i];
  }
}

INSTANTIATE_TEST_SUITE_P(All, SimnpuOperators, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SimnpuOperatorsMore, OutArgumentsGetTheirSize) {
  const at::Tensor x = at::arange(6, npu()).view({2, 3});
  at::Tensor out = at::empty({0}, at::TensorOptions(npu()).dtype(at::kLong));
  at::sum_out(out, x, 1);
  EXPECT_TRUE(same_bits(out, at::tensor({3, 12}, at::kLong)));
  at::Tensor where = at::empty({0}, at::TensorOptions(npu()).dtype(at::kLong));
  at::nonzero_out(where, x);
  EXPECT_EQ(where.sizes(), (std::vector<int64_t>{5, 2}));
}

TEST(SimnpuOperatorsMore, ACpuTensorAmongDeviceTensorsMustBeAScalar) {
  const at::Tensor x = at::ones({3}, npu());
  EXPECT_TRUE(same_bits(x + at::full({}, 2.0f), at::full({3}, 3.0f)));
  EXPECT_THAT(message_of([&] { x + at::ones({3}); }), ::testing::HasSubstr("npu:0 and cpu"));
  EXPECT_THAT(message_of([&] { at::index_select(x, 0, at::zeros({2}, at::kLong)); }),
              ::testing::HasSubstr("on the CPU"));
}

TEST(SimnpuOperatorsMore, ACpuScalarIsReadAtTheCall) {
  const at::Tensor x = at::ones({3}, npu());
  const at::Tensor scalar = at::full({}, 2.0f);
  Held held(guard().getStream(npu()));
  const at::Tensor y = x + scalar;
  scalar.fill_(100);
  held.release();
  EXPECT_TRUE(same_bits(y, at::full({3}, 3.0f)));
}

TEST(SimnpuOperatorsMore, RandomNumbersAreTheCpusForTheSameSeed) {
  at::Generator there = at::globalContext().defaultGenerator(npu());
  there.set_current_seed(123);
  at::Generator host = at::globalContext().defaultGenerator(c10::kCPU);
  host.set_current_seed(123);
  const at::Tensor expected = at::randn({50}), uniform = at::empty({20}).uniform_();
  EXPECT_TRUE(same_bits(at::randn({50}, npu()), expected));
  const at::Tensor state = there.get_state();
  EXPECT_TRUE(same_bits(at::empty({20}, npu()).uniform_(), uniform));
  there.set_state(state);
  EXPECT_TRUE(same_bits(at::empty({20}, npu()).uniform_(), uniform)) << "the state was restored";
}

// native_dropout has no generator argument: its CPU kernel draws from the CPU's default one.
TEST(SimnpuOperatorsMore, DropoutFollowsTheDevicesSeedAndLeavesTheCpusGeneratorAlone) {
  const at::Tensor x = at::ones({1000}, npu());
  at::Generator there = at::globalContext().defaultGenerator(npu());
  const at::Tensor before = at::globalContext().defaultGenerator(c10::kCPU).get_state();
  const auto drop = [&](uint64_t seed) {
    there.set_current_seed(seed);
    return at::native_dropout(x, 0.5, true);
  };
  const auto first = std::get<0>(drop(5)), again = std::get<0>(drop(5)), other = std::get<0>(drop(6));
  EXPECT_TRUE(same_bits(first, again));
  EXPECT_FALSE(same_bits(first, other));
  EXPECT_TRUE(same_bits(before, at::globalContext().defaultGenerator(c10::kCPU).get_state()));
}

TEST(SimnpuOperatorsMore, StoragesAreSharedAndResized) {
  at::Tensor x = at::arange(4, npu());
  at::Tensor y = at::empty({0}, x.options());
  y.set_(x);
  y.add_(1);
  EXPECT_TRUE(same_bits(x, at::tensor({1, 2, 3, 4}, at::kLong)));
  x.resize_({200});
  EXPECT_TRUE(same_bits(x.slice(0, 0, 4), at::tensor({1, 2, 3, 4}, at::kLong))) << "the old contents stay";
}

}  // namespace
}  // namespace pacer::simnpu
