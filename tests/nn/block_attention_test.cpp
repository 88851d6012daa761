#include "pacer/nn/block_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"
#include "pacer/nn/block_attention_rows.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

struct Case {
  BlockLayout layout;
  int64_t heads, kv_heads, width;
  std::optional<int64_t> window;
};

struct Tensors {
  at::Tensor q, k_block, v_block, k_context, v_context;
  std::vector<at::Tensor> all() const { return {q, k_block, v_block, k_context, v_context}; }
};

Tensors random_tensors(const Case& c, at::ScalarType dtype = at::kFloat) {
  const int64_t slots = c.layout.blocks() * c.layout.block_size, rows = c.layout.context_starts.back();
  const auto make = [&](int64_t n, int64_t heads) {
    return at::randn({n, heads, c.width}).to(dtype).detach().requires_grad_(true);
  };
  return {make(slots, c.heads), make(slots, c.kv_heads), make(slots, c.kv_heads), make(rows, c.kv_heads),
          make(rows, c.kv_heads)};
}

// The rule itself, key by key: what the fast path must never build.
at::Tensor dense_mask(const Case& c, int64_t block, int64_t slot, int64_t sequence, int64_t keys) {
  const BlockLayout& l = c.layout;
  at::Tensor mask = at::full({keys}, -std::numeric_limits<double>::infinity(), at::kDouble);
  const int64_t context = l.context_starts.back(), prefix = l.prefix[static_cast<size_t>(block)];
  for (int64_t i = 0; i < prefix; ++i) {
    if (c.window && i < prefix + slot - (*c.window - 1)) continue;
    mask[l.context_starts[static_cast<size_t>(sequence)] + i] = 0.0;
  }
  for (int64_t j = 0; j < l.block_size; ++j) {
    if (c.window && j > slot) continue;
    mask[context + block * l.block_size + j] = 0.0;
  }
  return mask;
}

at::Tensor dense_reference(const Case& c, const Tensors& t, double scale) {
  const BlockLayout& l = c.layout;
  const at::Tensor k = at::cat({t.k_context, t.k_block}).to(at::kDouble);
  const at::Tensor v = at::cat({t.v_context, t.v_block}).to(at::kDouble), q = t.q.to(at::kDouble);
  std::vector<at::Tensor> masks;
  for (size_t s = 0; s + 1 < l.block_starts.size(); ++s) {
    for (int64_t b = l.block_starts[s]; b < l.block_starts[s + 1]; ++b) {
      for (int64_t j = 0; j < l.block_size; ++j) {
        masks.push_back(dense_mask(c, b, j, static_cast<int64_t>(s), k.size(0)));
      }
    }
  }
  const at::Tensor mask = at::stack(masks);
  std::vector<at::Tensor> heads;
  for (int64_t h = 0; h < c.heads; ++h) {
    const int64_t kv = h * c.kv_heads / c.heads;
    const at::Tensor scores = at::matmul(q.select(1, h), k.select(1, kv).t()) * scale + mask;
    heads.push_back(at::matmul(at::softmax(scores, -1), v.select(1, kv)));
  }
  return at::stack(heads, 1);
}

const Case kCases[] = {
    // two sequences, a block without context, two blocks with the same prefix, grouped queries
    {{{0, 7, 20}, {0, 3, 7}, {0, 3, 7, 1, 5, 5, 12}, 5}, 4, 2, 16, std::nullopt},
    // a sequence without blocks, a context row that no block reaches, one slot, odd width
    {{{0, 4, 9, 15}, {0, 2, 2, 4}, {1, 4, 2, 5}, 1}, 3, 3, 7, std::nullopt},
    // no context at all
    {{{0, 0}, {0, 2}, {0, 0}, 3}, 4, 2, 16, std::nullopt},
    // more context than one tile, blocks in every tile
    {{{0, 1300}, {0, 5}, {3, 511, 512, 513, 1300}, 4}, 4, 1, 8, std::nullopt},
    // sliding windows: inside one tile, across the tile border, wider than everything
    {{{0, 9, 20}, {0, 3, 5}, {0, 6, 9, 2, 11}, 5}, 4, 2, 16, 6},
    {{{0, 1100}, {0, 4}, {2, 515, 520, 1100}, 3}, 2, 1, 8, 20},
    {{{0, 30}, {0, 2}, {10, 30}, 3}, 2, 2, 8, 1000},
};

class BlockAttention : public ::testing::TestWithParam<size_t> {};

TEST_P(BlockAttention, EqualsTheDenseMaskedForm) {
  const Case& c = kCases[GetParam()];
  const Tensors t = random_tensors(c);
  const double scale = 0.37;
  const at::Tensor out =
      block_attention(t.q, t.k_block, t.v_block, t.k_context, t.v_context, c.layout, scale, c.window);
  const at::Tensor direction = at::randn(out.sizes());
  (out * direction).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& x : t.all()) {
    gradients.push_back(x.grad().defined() ? x.grad().clone() : at::zeros_like(x));
    x.mutable_grad().reset();
  }
  const at::Tensor expected = dense_reference(c, t, scale);
  (expected * direction).sum().backward();
  EXPECT_TRUE(test::close(out, expected, 2e-6, 2e-5));
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_TRUE(test::close(gradients[i], t.all()[i].grad(), 1e-5, 1e-4)) << "input " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Layouts, BlockAttention, ::testing::Range(size_t{0}, std::size(kCases)));

TEST(BlockAttentionBf16, RoundsOnlyInputsAndResults) {
  const Case& c = kCases[0];
  const Tensors t = random_tensors(c, at::kBFloat16);
  const at::Tensor out = block_attention(t.q, t.k_block, t.v_block, t.k_context, t.v_context, c.layout, 0.25);
  ASSERT_EQ(out.scalar_type(), at::kBFloat16);
  EXPECT_TRUE(test::close(out, dense_reference(c, t, 0.25), 1e-6, 0.00391));  // half a unit of eight bits
  const at::Tensor direction = at::randn(out.sizes());
  (out * direction).sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& x : t.all()) {
    gradients.push_back(x.grad().to(at::kDouble));
    x.mutable_grad().reset();
  }
  (dense_reference(c, t, 0.25) * direction.to(at::kBFloat16)).sum().backward();
  for (size_t i = 0; i < gradients.size(); ++i) {
    EXPECT_TRUE(test::close_l2(gradients[i], t.all()[i].grad(), 6e-3)) << "input " << i;
  }
}

TEST(BlockAttentionRows, EveryInstructionSetAgreesWithThePlainOne) {
  const detail::BlockRowKernels& plain = detail::block_row_kernels_plain();
  for (const detail::BlockRowKernels* other : {detail::block_row_kernels_avx2(), detail::block_row_kernels_avx512()}) {
    if (other == nullptr) continue;
    for (const int64_t n : {1, 15, 16, 50}) {
      for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, n}, {n / 3, n - n / 4}, {n, n}}) {
        const at::Tensor scores = at::randn({n}) * 4.0, d_scores = at::randn({n});
        at::Tensor x[2], d[2];
        float max[2] = {-0.5f, -0.5f}, sum[2] = {1.25f, 1.25f}, factor[2];
        for (int which : {0, 1}) {
          const detail::BlockRowKernels& kernels = which == 0 ? plain : *other;
          x[which] = scores.clone(), d[which] = d_scores.clone();
          factor[which] = kernels.prefix({x[which].data_ptr<float>(), n, begin, end, 0.7f, &max[which], &sum[which]});
          at::Tensor again = scores.clone();
          kernels.prefix_backward(
              {again.data_ptr<float>(), d[which].data_ptr<float>(), n, begin, end, 0.7f, 1.5f, 0.25f});
        }
        EXPECT_FLOAT_EQ(max[0], max[1]);
        EXPECT_NEAR(sum[0], sum[1], 1e-5 * sum[0]);
        EXPECT_NEAR(factor[0], factor[1], 1e-6);
        EXPECT_TRUE(test::close(x[0], x[1], 1e-7, 1e-5));
        EXPECT_TRUE(test::close(d[0], d[1], 1e-7, 1e-5));
      }
    }
  }
}

TEST(BlockAttentionErrors, SayWhatDoesNotFit) {
  const Case& c = kCases[0];
  const Tensors t = random_tensors(c);
  BlockLayout layout = c.layout;
  std::swap(layout.prefix[1], layout.prefix[2]);
  EXPECT_THROW(block_attention(t.q, t.k_block, t.v_block, t.k_context, t.v_context, layout, 1.0), Error);
  layout = c.layout;
  layout.prefix[2] = 8;  // the sequence has 7 context rows: one more would read its neighbour's
  EXPECT_THROW(block_attention(t.q, t.k_block, t.v_block, t.k_context, t.v_context, layout, 1.0), Error);
}

}  // namespace
}  // namespace pacer::nn
