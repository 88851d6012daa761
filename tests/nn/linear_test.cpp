#include "pacer/nn/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

// Value and all gradients against autograd over the formula in f64.
TEST(Linear, ValueAndGradientsMatchTheFormula) {
  for (const bool with_bias : {false, true}) {
    at::Tensor x = at::randn({2, 7, 33}).requires_grad_(true), w = at::randn({19, 33}).requires_grad_(true);
    at::Tensor b = with_bias ? at::randn({19}).requires_grad_(true) : at::Tensor();
    const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(true); };
    at::Tensor wide_x = wide(x), wide_w = wide(w), wide_b = with_bias ? wide(b) : at::Tensor();
    const at::Tensor direction = at::randn({2, 7, 19});
    const at::Tensor y = linear(x, w, b);
    at::Tensor wide_y = at::matmul(wide_x, wide_w.t());
    if (with_bias) wide_y = wide_y + wide_b;
    EXPECT_TRUE(test::close(y, wide_y, 1e-4, 1e-5));
    (y * direction).sum().backward();
    (wide_y * direction.to(at::kDouble)).sum().backward();
    EXPECT_TRUE(test::close_l2(x.grad(), wide_x.grad(), 1e-5));
    EXPECT_TRUE(test::close_l2(w.grad(), wide_w.grad(), 1e-5));
    if (with_bias) {
      EXPECT_TRUE(test::close_l2(b.grad(), wide_b.grad(), 1e-5));
    }
  }
}

TEST(Linear, EveryLibraryGivesTheSameProducts) {
  const at::Tensor x = at::randn({37, 64}), w = at::randn({48, 64}), direction = at::randn({37, 48});
  std::vector<at::Tensor> seen[2];
  for (const char* name : {"torch", "onednn"}) {
    const F32Library library = f32_library(name);
    use_f32_products({library, library, library});
    EXPECT_EQ(f32_products(), (F32Products{library, library, library}));
    const at::Tensor a = x.clone().requires_grad_(true), b = w.clone().requires_grad_(true);
    const at::Tensor y = linear(a, b);
    (y * direction).sum().backward();
    seen[library == F32Library::torch ? 0 : 1] = {y.detach(), a.grad(), b.grad()};
  }
  use_f32_products(f32_products_of_processor());
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::close_l2(seen[1][i], seen[0][i], 1e-6)) << i;
  EXPECT_THROW(f32_library("mkl2"), Error);
}

// The border of the measurement is so far away that other work on the machine does not decide.
TEST(Linear, MeasuringComesToTheSameChoiceAgain) {
  const F32Products first = measured_f32_products();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(measured_f32_products(), first);
}

TEST(Linear, AFrozenWeightGetsNoGradient) {
  at::Tensor x = at::randn({4, 8}).requires_grad_(true);
  const at::Tensor w = at::randn({6, 8});
  linear(x, w).sum().backward();
  EXPECT_TRUE(test::close(x.grad(), w.sum(0).expand({4, 8}), 1e-5));
  EXPECT_FALSE(w.grad().defined());
}

TEST(Linear, Bf16) {
  const at::Tensor x = at::randn({5, 64}).to(at::kBFloat16), w = at::randn({9, 64}).to(at::kBFloat16);
  const at::Tensor exact = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t());
  EXPECT_TRUE(test::close_l2(linear(x, w), exact, 4e-3));
}

// Products of bf16 are exact in f32; y and each gradient are rounded once, at the end.
TEST(Linear, WidenedBf16RoundsOnce) {
  for (const bool with_bias : {false, true}) {
    const auto leaf = [](at::IntArrayRef shape) { return at::randn(shape).to(at::kBFloat16).requires_grad_(true); };
    const at::Tensor x = leaf({2, 7, 33}), w = leaf({19, 33}), b = with_bias ? leaf({19}) : at::Tensor();
    const auto wide = [](const at::Tensor& t) { return t.detach().to(at::kDouble).requires_grad_(true); };
    const at::Tensor wide_x = wide(x), wide_w = wide(w), wide_b = with_bias ? wide(b) : at::Tensor();
    const at::Tensor direction = at::randn({2, 7, 19}).to(at::kBFloat16);
    const at::Tensor y = widened_linear(x, w, b);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    at::Tensor exact = at::matmul(wide_x, wide_w.t());
    if (with_bias) exact = exact + wide_b;
    constexpr double kHalfStep = 1.0 / 256 + 1e-5;
    EXPECT_TRUE(test::close(y, exact, 1e-5, kHalfStep));
    y.backward(direction);
    exact.backward(direction.to(at::kDouble));
    EXPECT_TRUE(test::close(x.grad(), wide_x.grad(), 1e-5, kHalfStep));
    EXPECT_TRUE(test::close(w.grad(), wide_w.grad(), 1e-5, kHalfStep));
    if (with_bias) {
      EXPECT_TRUE(test::close(b.grad(), wide_b.grad(), 1e-5, kHalfStep));
    }
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(test::same_bits(widened_linear(x, w, b), y));
  }
}

TEST(Linear, SaysWhichShapesDisagree) {
  EXPECT_THROW(linear(at::ones({2, 8}), at::ones({4, 6})), Error);
  EXPECT_THROW(linear(at::ones({2, 6}), at::ones({4, 6}), at::ones({5})), Error);
}

}  // namespace
}  // namespace pacer::nn
