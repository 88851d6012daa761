#include "pacer/train/feature_source.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>

#include "pacer/device/runtime.h"
#include "tests/support/tensors.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

const target::Taps kTaps = {0, 2, 5};

struct Sources {
  device::Runtime runtime = device::Runtime::open("cpu");
  std::shared_ptr<const target::Target> target = target::Target::load(test::tiny_target(), at::kFloat, runtime);
  std::shared_ptr<const std::vector<data::TokenRow>> rows =
      std::make_shared<const std::vector<data::TokenRow>>(test::tiny_rows(11));

  FeatureSource make(int64_t together, uint64_t bytes) const { return {target, rows, kTaps, {together, bytes}}; }
};

TEST(FeatureSource, GivesTheStatesOfTheTarget) {
  const Sources sources;
  FeatureSource source = sources.make(1, 0);
  const draft::FeatureBatch batch = source.batch({4, 9});
  ASSERT_EQ(batch.starts.size(), 3u);
  EXPECT_EQ(batch.sample_ids, (std::vector<uint64_t>{4, 9}));
  const auto& row = (*sources.rows)[9];
  EXPECT_EQ(batch.starts[2] - batch.starts[1], static_cast<int64_t>(row.ids.size()));
  const auto alone = sources.target->forward(target::TokenBatch::single(row.ids), kTaps);
  EXPECT_TRUE(pacer::test::same_bits(batch.tapped.slice(0, batch.starts[1]).contiguous(), alone.tapped));
  EXPECT_TRUE(pacer::test::same_bits(batch.last.slice(0, batch.starts[1]).contiguous(), alone.last));
  EXPECT_EQ(batch.ids[batch.starts[1]].item<int64_t>(), row.ids[0]);
  EXPECT_EQ(batch.supervised.sum().item<int64_t>(), source.tokens({4, 9}).supervised.sum().item<int64_t>());
}

TEST(FeatureSource, ARowHasTheSameBitsWhateverItIsAskedForWithAndHoweverOften) {
  const Sources sources;
  FeatureSource keeps = sources.make(4, 1 << 20), forgets = sources.make(4, 0);
  const draft::FeatureBatch first = keeps.batch({2, 10, 0});
  const draft::FeatureBatch again = keeps.batch({0});
  const draft::FeatureBatch computed = forgets.batch({7, 0});
  const int64_t length = static_cast<int64_t>((*sources.rows)[0].ids.size());
  const auto row0 = [&](const draft::FeatureBatch& batch, size_t i) {
    return batch.tapped.narrow(0, batch.starts[i], length).contiguous();
  };
  EXPECT_TRUE(pacer::test::same_bits(row0(first, 2), row0(again, 0)));
  EXPECT_TRUE(pacer::test::same_bits(row0(first, 2), row0(computed, 1)));
}

TEST(FeatureSource, KeepsTheNormalisersOfTheRowsThatTeach) {
  const Sources sources;
  FeatureSource source = sources.make(4, 1 << 20);
  int64_t asked = 0;
  source.use_log_sums([&](const at::Tensor& last) {
    asked += last.size(0);
    return sources.target->logits(last).logsumexp(-1);
  });
  for (int time = 0; time < 2; ++time) {
    const draft::FeatureBatch batch = source.batch({5, 2});
    const at::Tensor all = sources.target->logits(batch.last).logsumexp(-1);
    for (size_t s = 0; s < 2; ++s) {
      for (int64_t row = batch.starts[s]; row + 1 < batch.starts[s + 1]; ++row) {
        const bool teaches = batch.supervised[row + 1].item<uint8_t>() != 0;
        EXPECT_NEAR(batch.log_sum[row].item<float>(), teaches ? all[row].item<float>() : 0.0f, 1e-4) << row;
      }
    }
  }
  int64_t teaching = 0;  // of the two groups of four, once each
  for (int64_t row = 0; row < 8; ++row) {
    const auto& supervised = (*sources.rows)[static_cast<size_t>(row)].supervised;
    teaching += std::count(supervised.begin() + 1, supervised.end(), uint8_t{1});
  }
  EXPECT_EQ(asked, teaching);
}

TEST(FeatureSource, ComputesAGroupOnceWhileThereIsMemory) {
  const Sources sources;
  FeatureSource source = sources.make(4, 1 << 20);
  source.batch({0, 1, 2, 3, 4});
  EXPECT_EQ(source.statistics().groups_computed, 2);
  EXPECT_EQ(source.statistics().rows_computed, 8);
  source.batch({7, 5, 0});
  EXPECT_EQ(source.statistics().groups_computed, 2);
  source.batch({10});
  EXPECT_EQ(source.statistics().groups_computed, 3);
  EXPECT_EQ(source.statistics().rows_computed, 11);  // the last group is shorter
}

TEST(FeatureSource, ForgetsWhatWasUsedLongestAgoAndStaysInItsMemory) {
  const Sources sources;
  const auto bytes_of = [&](int64_t row) {
    return feature_bytes(static_cast<int64_t>((*sources.rows)[static_cast<size_t>(row)].ids.size()),
                         sources.target->config(), kTaps.size(), at::kFloat);
  };
  const uint64_t room = bytes_of(0) + bytes_of(1) + bytes_of(2);
  FeatureSource source = sources.make(1, room);
  source.batch({0, 1, 2});
  EXPECT_EQ(source.statistics().bytes_kept, room);
  source.batch({0});  // 1 is now the one used longest ago
  source.batch({3});  // has to push out 1, perhaps 2
  EXPECT_LE(source.statistics().bytes_kept, room);
  const int64_t computed = source.statistics().groups_computed;
  source.batch({0, 3});
  EXPECT_EQ(source.statistics().groups_computed, computed);
  source.batch({1});
  EXPECT_EQ(source.statistics().groups_computed, computed + 1);
}

}  // namespace
}  // namespace pacer::train
