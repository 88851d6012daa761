#include "pacer/nn/swiglu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

at::Tensor textbook(const at::Tensor& gate_up) {
  const int64_t inner = gate_up.size(1) / 2;
  return at::silu(gate_up.slice(1, 0, inner)) * gate_up.slice(1, inner);
}

// Own kernels round once to bf16; the operators of the plain path several times.
double bf16_rounding() { return std::ldexp(device::own_kernels(device::host_device()) ? 1.0 : 4.0, -8); }

constexpr int64_t kWidths[] = {1, 15, 16, 17, 100};

TEST(SwiGlu, IsTheTextbookFormulaAtEveryWidth) {
  for (const int64_t inner : kWidths) {
    const at::Tensor x = at::randn({7, 2 * inner}) * 4;
    EXPECT_TRUE(test::close(swiglu(x), textbook(x), 1e-6, 1e-6)) << inner;
    const at::Tensor narrow = x.to(at::kBFloat16);
    EXPECT_TRUE(test::close(swiglu(narrow), textbook(narrow.to(at::kFloat)), 1e-6, bf16_rounding())) << inner;
  }
}

TEST(SwiGlu, GradientsAreThoseOfTheTextbook) {
  for (const int64_t inner : kWidths) {
    const at::Tensor x = at::randn({7, 2 * inner}) * 4, direction = at::randn({7, inner});
    at::Tensor own = x.clone().requires_grad_(true), same = x.clone().requires_grad_(true);
    at::Tensor narrow = x.to(at::kBFloat16).requires_grad_(true),
               wide = narrow.detach().to(at::kFloat).requires_grad_(true);
    const at::Tensor narrow_direction = direction.to(at::kBFloat16);
    swiglu(own).backward(direction);
    textbook(same).backward(direction);
    EXPECT_TRUE(test::close(own.grad(), same.grad(), 1e-5, 1e-5)) << inner;
    swiglu(narrow).backward(narrow_direction);
    textbook(wide).backward(narrow_direction.to(at::kFloat));
    EXPECT_TRUE(test::close(narrow.grad(), wide.grad(), 1e-5, bf16_rounding())) << inner;
  }
}

TEST(SwiGlu, ReadsRowsThatAreNotDense) {
  const at::Tensor all = at::randn({5, 40}), part = all.slice(1, 3, 35);
  EXPECT_TRUE(test::same_bits(swiglu(part), swiglu(part.contiguous())));
}

TEST(SwiGlu, LargeGatesSaturateAndNaNStaysVisible) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor x = at::zeros({1, 34}, at::kFloat) + 1;
    x[0][0] = 1e4, x[0][1] = -1e4;
    const at::Tensor y = swiglu(x.to(dtype));
    EXPECT_TRUE(at::isfinite(y).all().item<bool>());
    EXPECT_NEAR(y[0][0].item<double>(), 1e4, 64);
    EXPECT_NEAR(y[0][1].item<double>(), 0, 1e-30);
    for (const int64_t place : {3, 20}) {  // the gate, then what it lets through
      at::Tensor bad = at::randn({1, 34});
      bad[0][place] = std::numeric_limits<float>::quiet_NaN();
      at::Tensor leaf = bad.to(dtype).requires_grad_(true);
      const at::Tensor out = swiglu(leaf);
      EXPECT_EQ(at::isnan(out).sum().item<int64_t>(), 1) << place;
      EXPECT_TRUE(at::isnan(out[0][3]).item<bool>()) << place;
      out.sum().backward();
      EXPECT_TRUE(at::isnan(leaf.grad()[0][3]).item<bool>()) << place;
    }
  }
}

TEST(SwiGlu, RefusesWhatAreNotTwoHalves) {
  EXPECT_THROW(swiglu(at::zeros({2, 5})), Error);
  EXPECT_THROW(swiglu(at::zeros({6})), Error);
}

}  // namespace
}  // namespace pacer::nn
