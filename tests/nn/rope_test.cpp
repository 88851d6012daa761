#include "pacer/nn/rope.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>

#include "pacer/base/error.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

const RopeTable kTable({1.0f, 0.25f, 0.0625f});

at::Tensor half_turned(const at::Tensor& x) {
  const int64_t half = x.size(-1) / 2;
  return at::cat({-x.slice(-1, half), x.slice(-1, 0, half)}, -1);
}

// The textbook form x cos + rotate_half(x) sin; in bf16 it rounds where apply_rope must round.
at::Tensor textbook(const at::Tensor& x, const RopeRows& rows) {
  const at::Tensor cos = at::cat({rows.cos, rows.cos}, -1).unsqueeze(1).to(x.scalar_type());
  const at::Tensor sin = at::cat({rows.sin, rows.sin}, -1).unsqueeze(1).to(x.scalar_type());
  return x * cos + half_turned(x) * sin;
}

TEST(Rope, AQuarterTurnSwapsTheHalves) {
  const RopeTable quarter({static_cast<float>(M_PI / 2)});
  const at::Tensor x = at::tensor({3.0f, 5.0f}).view({1, 1, 2});
  const at::Tensor y = apply_rope(x, quarter.rows(at::tensor({int64_t{1}})));
  EXPECT_TRUE(test::close(y.flatten(), at::tensor({-5.0f, 3.0f}), 1e-6));
}

TEST(Rope, MatchesTheTextbookInBothTypes) {
  const RopeRows rows = kTable.rows(at::arange(100, 109));
  const at::Tensor x = at::randn({9, 4, 6});
  EXPECT_TRUE(test::close(apply_rope(x, rows), textbook(x, rows), 1e-6, 1e-6));
  const at::Tensor narrow = x.to(at::kBFloat16);
  EXPECT_TRUE(test::same_bits(apply_rope(narrow, rows), textbook(narrow, rows)));
}

TEST(Rope, ReadsStridedRows) {
  const RopeRows rows = kTable.rows(at::arange(9));
  const at::Tensor all = at::randn({9, 10, 6}), part = all.slice(1, 3, 7);
  EXPECT_TRUE(test::same_bits(apply_rope(part, rows), apply_rope(part.contiguous(), rows)));
}

TEST(Rope, GradientIsTheTurnBack) {
  const RopeRows rows = kTable.rows(at::arange(9));
  at::Tensor x = at::randn({9, 4, 6}).requires_grad_(true), same = x.detach().clone().requires_grad_(true);
  const at::Tensor direction = at::randn({9, 4, 6});
  (apply_rope(x, rows) * direction).sum().backward();
  (textbook(same, rows) * direction).sum().backward();
  EXPECT_TRUE(test::close(x.grad(), same.grad(), 1e-6, 1e-6));
}

TEST(Rope, ScalingMultipliesCosinesAndSines) {
  const RopeTable scaled(kTable.inverse_frequencies(), 1.5);
  const at::Tensor positions = at::arange(7);
  EXPECT_TRUE(test::close(scaled.rows(positions).cos, kTable.rows(positions).cos * 1.5, 1e-6));
  EXPECT_TRUE(test::close(scaled.rows(positions).sin, kTable.rows(positions).sin * 1.5, 1e-6));
}

TEST(Rope, RefusesOtherShapes) {
  const RopeRows rows = kTable.rows(at::arange(9));
  EXPECT_THROW(apply_rope(at::ones({8, 4, 6}), rows), Error);
  EXPECT_THROW(apply_rope(at::ones({9, 4, 8}), rows), Error);
  EXPECT_THROW(apply_rope(at::ones({9, 4, 6}, at::kDouble), rows), Error);
}

}  // namespace
}  // namespace pacer::nn
