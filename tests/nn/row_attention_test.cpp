// Attention over the cache, against the dense masked form in f64, and its promise about bits.
#include "pacer/nn/row_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>

#include "pacer/base/error.h"
#include "pacer/nn/causal_attention.h"
#include "tests/nn/row_cases.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

constexpr int64_t kAll = std::numeric_limits<int64_t>::max() / 2;

// Query i of the last q.size(0) positions sees `reach` positions, its own included. Arithmetic in f64; scores, scaled
// scores and probabilities are rounded to the type of q, as the contract says.
at::Tensor dense(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t reach) {
  const int64_t group = q.size(1) / k.size(1), length = k.size(0);
  const auto heads_first = [](const at::Tensor& x, int64_t repeats) {
    return x.to(at::kDouble).transpose(0, 1).repeat_interleave(repeats, 0);
  };
  const auto stored = [&](const at::Tensor& x) { return x.to(q.scalar_type()).to(at::kDouble); };
  const at::Tensor query = at::arange(length - q.size(0), length).unsqueeze(1), key = at::arange(length).unsqueeze(0);
  const at::Tensor hidden = (key > query) + (key <= query - reach);
  const at::Tensor scores = stored(at::matmul(heads_first(q, 1), heads_first(k, group).transpose(1, 2)));
  const at::Tensor scaled = stored(scores / std::sqrt(static_cast<double>(q.size(2))));
  const at::Tensor masked = scaled.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(stored(at::softmax(masked, -1)), heads_first(v, group)).transpose(0, 1);
}

struct Shape {
  int64_t heads, kv_heads, dim;
};
const std::vector<Shape> kShapes = {{9, 3, 64}, {4, 1, 12}, {4, 4, 8}, {4, 2, 80}, {2, 2, 128}};

template <typename T>
class RowAttentionTest : public ::testing::Test {
 protected:
  // What is left in bf16 is the rounding of the result, and now and then of a score whose f32 sum fell the other way.
  static constexpr double kBound = sizeof(T) == 2 ? 4e-3 : 1e-5;

  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(kRowType<T>); }

  static at::Tensor attend(const at::Tensor& q, const KeyValuePanels& cache, int64_t first, int64_t reach,
                           const RowKernels<T>& set) {
    at::Tensor out = at::empty_like(q);
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      row_attention(row_data<T>(q), q.size(0), q.size(1), cache, head, first, reach, row_data_to_write<T>(out), set);
    }
    return out;
  }
};
TYPED_TEST_SUITE(RowAttentionTest, RowTypes);

TYPED_TEST(RowAttentionTest, EverySetMatchesTheDenseForm) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const Shape& shape : kShapes) {
      for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, 1}, {0, 7}, {1, 1}, {63, 3}, {150, 16}}) {
        for (const int64_t reach : {kAll, int64_t{8}, int64_t{70}}) {
          const int64_t length = first + rows;
          const at::Tensor q = this->random({rows, shape.heads, shape.dim});
          const at::Tensor k = this->random({length, shape.kv_heads, shape.dim});
          const at::Tensor v = this->random({length, shape.kv_heads, shape.dim});
          KeyValuePanels cache(shape.kv_heads, shape.dim, kRowType<TypeParam>, 1, set->lanes);
          cache.write(0, k, v);
          EXPECT_TRUE(test::close_l2(this->attend(q, cache, first, reach, *set), dense(q, k, v, reach), this->kBound))
              << set->name << " dim " << shape.dim << " first " << first << " rows " << rows << " reach " << reach;
        }
      }
    }
  }
}

// The promise that lossless decoding rests on: alone, among others, and over leftovers of rows that were cropped.
TYPED_TEST(RowAttentionTest, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const Shape& shape : kShapes) {
      for (const int64_t reach : {kAll, int64_t{70}}) {
        constexpr int64_t kFirst = 120, kRows = 16;
        const at::Tensor q = this->random({kRows, shape.heads, shape.dim});
        const at::Tensor k = this->random({kFirst + kRows, shape.kv_heads, shape.dim});
        const at::Tensor v = this->random({kFirst + kRows, shape.kv_heads, shape.dim});
        KeyValuePanels together(shape.kv_heads, shape.dim, kRowType<TypeParam>, 1, set->lanes);
        together.write(0, k, v);
        KeyValuePanels grown(shape.kv_heads, shape.dim, kRowType<TypeParam>, 1, set->lanes);
        grown.write(0, k.slice(0, 0, kFirst), v.slice(0, 0, kFirst));
        const at::Tensor all = this->attend(q, together, kFirst, reach, *set);
        for (int64_t row = 0; row < kRows; ++row) {
          const at::Tensor one = q.slice(0, row, row + 1);
          const at::Tensor rejected = at::ones({3, shape.kv_heads, shape.dim}).to(kRowType<TypeParam>) * 1e30;
          grown.write(kFirst + row, rejected, rejected);
          grown.write(kFirst + row, k.slice(0, kFirst + row, kFirst + row + 1),
                      v.slice(0, kFirst + row, kFirst + row + 1));
          ASSERT_TRUE(test::same_bits(this->attend(one, grown, kFirst + row, reach, *set), all.slice(0, row, row + 1)))
              << set->name << " dim " << shape.dim << " reach " << reach << " row " << row;
        }
        for (int64_t rows = 2; rows < kRows; ++rows) {
          ASSERT_TRUE(
              test::same_bits(this->attend(q.slice(0, 0, rows), together, kFirst, reach, *set), all.slice(0, 0, rows)))
              << set->name << " dim " << shape.dim << " reach " << reach << " rows " << rows;
        }
      }
    }
  }
}

TYPED_TEST(RowAttentionTest, PanelsGiveBackWhatWasWrittenAcrossGrowth) {
  for (const Shape& shape : kShapes) {
    const at::Tensor k = this->random({300, shape.kv_heads, shape.dim});
    const at::Tensor v = this->random({300, shape.kv_heads, shape.dim});
    KeyValuePanels cache(shape.kv_heads, shape.dim, kRowType<TypeParam>, 1);
    for (int64_t row = 0; row < 300; row += 50) cache.write(row, k.slice(0, row, row + 50), v.slice(0, row, row + 50));
    EXPECT_TRUE(test::same_bits(cache.keys(300), k));
    EXPECT_TRUE(test::same_bits(cache.values(300), v));
    const KeyValuePanels copy = cache.clone();
    cache.write(0, v.slice(0, 0, 9), k.slice(0, 0, 9));
    EXPECT_TRUE(test::same_bits(copy.keys(300), k));
  }
}

TYPED_TEST(RowAttentionTest, TheLongFormMatchesTheDenseForm) {
  for (const Shape& shape : kShapes) {
    for (const auto& [past, rows] : {std::pair<int64_t, int64_t>{0, 1}, {0, 150}, {40, 20}, {30, 200}}) {
      for (const std::optional<int64_t> window : {std::optional<int64_t>(), std::optional<int64_t>(8)}) {
        const at::Tensor q = this->random({rows, shape.heads, shape.dim});
        const at::Tensor k = this->random({past + rows, shape.kv_heads, shape.dim});
        const at::Tensor v = this->random({past + rows, shape.kv_heads, shape.dim});
        EXPECT_TRUE(
            test::close_l2(causal_attention(q, k, v, window), dense(q, k, v, window.value_or(kAll)), this->kBound))
            << "dim " << shape.dim << " past " << past << " rows " << rows << " window " << window.value_or(0);
      }
    }
  }
}

TEST(KeyValuePanels, RefusesRowsOfAnotherShape) {
  EXPECT_THROW(KeyValuePanels(1, 7, at::kFloat, 1), Error);
  EXPECT_THROW(KeyValuePanels(1, 8, at::kDouble, 1), Error);
  KeyValuePanels cache(2, 8, at::kFloat, 1);
  EXPECT_THROW(cache.write(0, at::ones({1, 2, 6}), at::ones({1, 2, 6})), Error);
  EXPECT_THROW(cache.write(0, at::ones({1, 2, 8}, at::kBFloat16), at::ones({1, 2, 8}, at::kBFloat16)), Error);
}

TEST(CausalAttention, RefusesShapesThatDoNotFit) {
  EXPECT_THROW(causal_attention(at::ones({4, 3, 8}), at::ones({4, 2, 8}), at::ones({4, 2, 8})), Error);
  EXPECT_THROW(causal_attention(at::ones({5, 2, 8}), at::ones({4, 2, 8}), at::ones({4, 2, 8})), Error);
}

}  // namespace
}  // namespace pacer::nn
