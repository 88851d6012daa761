// Random numbers of the tests themselves (tests/support/seeds.cpp).
#include <gtest/gtest.h>

#include <ATen/ops/randn.h>

#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

class Seeds : public ::testing::TestWithParam<int> {};

TEST_P(Seeds, EveryTestBeginsWithTheSameNumbers) {
  static const at::Tensor first = at::randn({5});  // of the test that comes first
  if (GetParam() == 0) return;
  EXPECT_TRUE(test::same_bits(at::randn({5}), first));
}

INSTANTIATE_TEST_SUITE_P(Twice, Seeds, ::testing::Values(0, 1));

}  // namespace
}  // namespace pacer::nn
