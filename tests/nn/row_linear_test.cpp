#include "pacer/nn/row_linear.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"
#include "tests/nn/row_cases.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

template <typename T>
class RowLinearTest : public ::testing::Test {
 protected:
  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(kRowType<T>); }
  PanelArena arena_;
};
TYPED_TEST_SUITE(RowLinearTest, RowTypes);

// Widths that fill panels, that leave every kind of rest, and an odd one, whose last input has no partner in bf16.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{64, 32}, {97, 32}, {576, 64}, {16, 8}, {50, 33}, {200, 130}};

TYPED_TEST(RowLinearTest, EverySetMatchesTheProductInF64) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const auto& [outputs, inputs] : kShapes) {
      const at::Tensor w = this->random({outputs, inputs}), x = this->random({16, inputs});
      const RowLinear<TypeParam> linear({w}, this->arena_, *set);
      const at::Tensor exact = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t());
      EXPECT_TRUE(test::close(linear(x), exact, 1e-4, 1e-5)) << set->name << " " << outputs << " x " << inputs;
    }
  }
}

TYPED_TEST(RowLinearTest, StackedWeightsAreOneLayer) {
  const at::Tensor a = this->random({40, 32}), b = this->random({24, 32}), c = this->random({7, 32});
  const at::Tensor x = this->random({3, 32});
  const RowLinear<TypeParam> stacked({a, b, c}, this->arena_), whole({at::cat({a, b, c})}, this->arena_);
  EXPECT_EQ(stacked.outputs(), 71);
  EXPECT_TRUE(test::same_bits(stacked(x), whole(x)));
}

TYPED_TEST(RowLinearTest, ARowHasTheSameBitsAmongAnyNumberOfOthers) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    const RowLinear<TypeParam> linear({this->random({200, 130})}, this->arena_, *set);
    const at::Tensor x = this->random({48, 130});
    std::vector<at::Tensor> alone;
    for (int64_t row = 0; row < 48; ++row) alone.push_back(linear(x.slice(0, row, row + 1)));
    for (int64_t rows = 1; rows <= 48; rows += rows < 16 ? 1 : 16) {
      const at::Tensor together = linear(x.slice(0, 0, rows));
      for (int64_t row = 0; row < rows; ++row) {
        ASSERT_TRUE(test::same_bits(together.slice(0, row, row + 1), alone[static_cast<size_t>(row)]))
            << set->name << " row " << row << " of " << rows;
      }
    }
  }
}

TYPED_TEST(RowLinearTest, ThreadsDoNotChangeBits) {
  const int threads = at::get_num_threads();
  const RowLinear<TypeParam> linear({this->random({4096, 256})}, this->arena_);
  const at::Tensor x = this->random({6, 256});
  at::set_num_threads(1);
  const at::Tensor one = linear(x);
  at::set_num_threads(2);
  const at::Tensor two = linear(x);
  at::set_num_threads(threads);
  EXPECT_TRUE(test::same_bits(one, two));
}

TYPED_TEST(RowLinearTest, SaysWhatDoesNotFit) {
  EXPECT_THROW(RowLinear<TypeParam>({this->random({4, 8}), this->random({4, 6})}, this->arena_), Error);
  EXPECT_THROW(RowLinear<TypeParam>({at::ones({4, 8}, at::kDouble)}, this->arena_), Error);
  const RowLinear<TypeParam> linear({this->random({4, 8})}, this->arena_);
  EXPECT_THROW(linear(this->random({2, 6})), Error);
}

// More than one block, pieces that outlive the arena, alignment, zeroes.
TEST(PanelArena, PiecesAreAlignedZeroedAndOutliveIt) {
  std::vector<std::shared_ptr<std::byte>> pieces;
  {
    PanelArena arena;
    for (const size_t bytes : {size_t{1}, size_t{100}, size_t{70} << 20, size_t{64}})
      pieces.push_back(arena.take(bytes));
  }
  for (const auto& piece : pieces) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.get()) % 64, 0u);
    EXPECT_EQ(*piece, std::byte{0});
    *piece = std::byte{1};
  }
}

}  // namespace
}  // namespace pacer::nn
