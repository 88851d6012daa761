#include "pacer/nn/rms_norm.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tensor.h>

#include "pacer/base/error.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

constexpr double kEpsilon = 1e-5;

TEST(RmsNorm, WorkedExample) {
  // The mean of the squares of (3, 4) is 12.5.
  const at::Tensor y = rms_norm(at::tensor({3.0f, 4.0f}), at::tensor({1.0f, 2.0f}), 0.0);
  EXPECT_NEAR(y[0].item<double>(), 3.0 / std::sqrt(12.5), 1e-6);
  EXPECT_NEAR(y[1].item<double>(), 2 * 4.0 / std::sqrt(12.5), 1e-6);
}

// Value and both gradients against autograd over the formula in f64; 37 is no multiple of a vector.
TEST(RmsNorm, ValueAndGradientsMatchTheFormula) {
  for (const int64_t width : {5, 16, 37, 576}) {
    at::Tensor x = at::randn({3, width}).requires_grad_(true), w = at::randn({width}).requires_grad_(true);
    at::Tensor wide_x = x.detach().to(at::kDouble).requires_grad_(true);
    at::Tensor wide_w = w.detach().to(at::kDouble).requires_grad_(true);
    const at::Tensor direction = at::randn({3, width});
    const at::Tensor y = rms_norm(x, w, kEpsilon);
    const at::Tensor wide_y = wide_x * at::rsqrt(wide_x.square().mean(-1, true) + kEpsilon) * wide_w;
    EXPECT_TRUE(test::close(y, wide_y, 1e-5, 1e-5));
    (y * direction).sum().backward();
    (wide_y * direction.to(at::kDouble)).sum().backward();
    EXPECT_TRUE(test::close_l2(x.grad(), wide_x.grad(), 1e-5)) << width;
    EXPECT_TRUE(test::close_l2(w.grad(), wide_w.grad(), 1e-5)) << width;
  }
}

TEST(RmsNorm, Bf16RoundsTheQuotientBeforeTheWeight) {
  const at::Tensor x = at::randn({4, 64}).to(at::kBFloat16), w = at::randn({64}).to(at::kBFloat16);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor quotient = (wide * at::rsqrt(wide.square().mean(-1, true) + kEpsilon)).to(at::kBFloat16);
  EXPECT_TRUE(test::close(rms_norm(x, w, kEpsilon), quotient * w, 0, 1.0 / 128));
}

TEST(RmsNorm, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({64, 576}).to(dtype), w = at::randn({576}).to(dtype);
    const at::Tensor together = rms_norm(x, w, kEpsilon);
    for (int64_t row = 0; row < x.size(0); ++row) {
      EXPECT_TRUE(test::same_bits(rms_norm(x[row], w, kEpsilon), together[row])) << toString(dtype) << " row " << row;
    }
  }
}

TEST(RmsNorm, SaysWhatDoesNotFit) {
  try {
    rms_norm(at::ones({2, 8}), at::ones({6}), kEpsilon);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    EXPECT_STREQ(error.what(), "rms_norm: rows of width 8, weight of width 6");
  }
  EXPECT_THROW(rms_norm(at::ones({2, 8}), at::ones({8}, at::kBFloat16), kEpsilon), Error);
  EXPECT_THROW(rms_norm(at::ones({2, 8}, at::kDouble), at::ones({8}, at::kDouble), kEpsilon), Error);
}

}  // namespace
}  // namespace pacer::nn
