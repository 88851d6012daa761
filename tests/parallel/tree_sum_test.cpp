#include "pacer/parallel/tree_sum.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

using ::testing::ElementsAre;

// The definition, written down once more.
at::Tensor naive(const std::vector<at::Tensor>& leaves, int64_t begin, int64_t count) {
  if (count == 1) return leaves[static_cast<size_t>(begin)].clone();
  int64_t half = 1;
  while (2 * half < count) half *= 2;
  return naive(leaves, begin, half) + naive(leaves, begin + half, count - half);
}

TEST(TreeSum, CoversARunWithTheFewestNodes) {
  EXPECT_THAT(covering_nodes(6, 0, 3), ElementsAre(TreeNode{0, 2}, TreeNode{2, 1}));
  EXPECT_THAT(covering_nodes(6, 3, 6), ElementsAre(TreeNode{3, 1}, TreeNode{4, 2}));
  EXPECT_THAT(covering_nodes(8, 4, 8), ElementsAre(TreeNode{4, 4}));
  EXPECT_THAT(covering_nodes(5, 0, 5), ElementsAre(TreeNode{0, 5}));
  EXPECT_TRUE(covering_nodes(4, 2, 2).empty());
}

TEST(TreeSum, RefusesWhatIsNoNodeOrThereAlready) {
  TreeSum sum(6);
  EXPECT_THROW(sum.add({1, 2}, at::zeros({1})), Error);
  sum.add({0, 2}, at::zeros({1}));
  EXPECT_THROW(sum.add({1, 1}, at::zeros({1})), Error);
  EXPECT_THROW(sum.add({0, 2}, at::zeros({1})), Error);
  EXPECT_THROW(sum.take_root(), Error);
}

// Whatever the order of arrival and wherever the leaves were cut, the bits are those of the definition.
RC_GTEST_PROP(TreeSumProperties, AnyOrderAndAnyCutGiveTheSameBits, ()) {
  const auto leaves = *rc::gen::inRange<int64_t>(1, 40);
  const auto cuts = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, leaves + 1));
  std::mt19937 random(*rc::gen::arbitrary<unsigned>());
  std::vector<at::Tensor> values;
  for (int64_t i = 0; i < leaves; ++i) values.push_back(at::rand({3}) * std::pow(10.0, static_cast<double>(i % 9)));
  std::vector<int64_t> ends = cuts;
  ends.insert(ends.end(), {0, leaves});
  std::sort(ends.begin(), ends.end());
  TreeSum whole(leaves);
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    TreeSum local(leaves);  // of one rank
    std::vector<int64_t> mine(static_cast<size_t>(ends[i + 1] - ends[i]));
    std::iota(mine.begin(), mine.end(), ends[i]);
    std::shuffle(mine.begin(), mine.end(), random);
    for (const int64_t leaf : mine) local.add({leaf, 1}, values[static_cast<size_t>(leaf)].clone());
    std::vector<TreeNode> nodes;
    for (auto& part : local.take_parts()) {
      nodes.push_back(part.node);
      whole.add(part.node, std::move(part.value));
    }
    RC_ASSERT(nodes == covering_nodes(leaves, ends[i], ends[i + 1]));
  }
  RC_ASSERT(bool(test::same_bits(whole.take_root(), naive(values, 0, leaves))));
}

}  // namespace
}  // namespace pacer::parallel
