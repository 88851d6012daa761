#include "pacer/optim/clip.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"

namespace pacer::optim {
namespace {

TEST(GlobalNorm, IsTheLengthOfAllTensorsTogether) {
  const std::map<std::string, at::Tensor> gradients = {
      {"a", at::full({1}, 2.0f)}, {"b", at::full({2, 2}, 1.0f)}, {"c", at::full({1}, -1.0f)}, {"d", at::Tensor()}};
  EXPECT_DOUBLE_EQ(global_norm(gradients), 3.0);
}

TEST(GlobalNorm, HasTheSameBitsWithAnyNumberOfThreads) {
  const std::map<std::string, at::Tensor> gradients = {{"a", at::randn({300, 1001})}, {"b", at::randn({17})}};
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const double one = global_norm(gradients);
  at::set_num_threads(2);
  const double two = global_norm(gradients);
  at::set_num_threads(threads);
  EXPECT_EQ(one, two);
  EXPECT_NEAR(one, std::sqrt(300.0 * 1001 + 17), 0.01 * one);
}

TEST(GlobalNorm, DoesNotOverflowWhereF32Would) {
  EXPECT_NEAR(global_norm({{"a", at::full({4}, 1e30f)}}) / 2e30, 1.0, 1e-6);
}

TEST(GlobalNorm, ShowsNotANumberAndNamesTheTensor) {
  at::Tensor bad = at::randn({40'000});
  bad[39'999] = std::numeric_limits<float>::quiet_NaN();
  const std::map<std::string, at::Tensor> gradients = {{"fine", at::randn({3})}, {"layers.0.bad", bad}};
  EXPECT_TRUE(std::isnan(global_norm(gradients)));
  EXPECT_EQ(first_not_finite(gradients), "layers.0.bad");
  bad[39'999] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(global_norm(gradients)));
  bad[39'999] = 0;
  EXPECT_EQ(first_not_finite(gradients), "");
}

TEST(GlobalNorm, RefusesOtherDtypes) { EXPECT_THROW(global_norm({{"a", at::randn({3}).to(at::kBFloat16)}}), Error); }

TEST(ClipCoefficient, ShortensOnlyWhatIsTooLong) {
  EXPECT_DOUBLE_EQ(clip_coefficient(0.5, 1.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 1.0), 1.0 / (4.0 + 1e-6));
  EXPECT_DOUBLE_EQ(clip_coefficient(4.0, 0.0), 1.0);
  EXPECT_DOUBLE_EQ(clip_coefficient(0.0, 1.0), 1.0);
}

}  // namespace
}  // namespace pacer::optim
