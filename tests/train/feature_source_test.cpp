#include "pacer/train/feature_source.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>

#include "pacer/base/error.h"
#include "pacer/device/runtime.h"
#include "pacer/target/exact_rows.h"
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

// With decoding kernels a row is what the target computes while it writes it, so states that were kept then may stand
// in for it.
TEST(FeatureSource, TakesStatesThatWereComputedWithTheRows) {
  const Sources sources;
  const auto make = [&] { return FeatureSource(sources.target, sources.rows, kTaps, {4, 1 << 20, true}); };
  FeatureSource computes = make(), takes = make();
  const auto store = std::make_shared<StateStore>(kTaps, 1 << 20);
  for (const size_t number : {0, 1, 3, 9}) {
    const data::TokenRow& row = (*sources.rows)[number];
    const std::vector<int64_t> seen(row.ids.begin(), row.ids.end() - 1);
    const target::TargetOutput states = target::forward_exact(*sources.target, {seen}, kTaps);
    KeptStates kept{states, {}};
    if (number != 1) {  // of which the normalisers have to be computed
      const at::Tensor sums = target::exact_log_sums(*sources.target, states.last.slice(0, -2));
      kept.log_sums.assign(sums.const_data_ptr<float>(), sums.const_data_ptr<float>() + sums.numel());
    }
    ASSERT_TRUE(store->put(row.id, row.ids, std::move(kept)));
  }
  takes.use_states(store);
  int64_t normalised = 0;  // rows
  const auto log_sums = [&](const at::Tensor& last) {
    normalised += last.size(0);
    return target::exact_log_sums(*sources.target, last);
  };
  for (FeatureSource* source : {&computes, &takes}) source->use_log_sums(log_sums);
  const draft::FeatureBatch expected = computes.batch({0, 2, 3, 9});
  const int64_t without_store = normalised;
  const draft::FeatureBatch given = takes.batch({0, 2, 3, 9});
  EXPECT_EQ(normalised - without_store, without_store - 3 * 2) << "two of each of three rows were known";
  EXPECT_EQ(takes.statistics().rows_given, 4);
  EXPECT_TRUE(pacer::test::same_bits(expected.log_sum, given.log_sum));
  EXPECT_EQ(store->rows(), 0);
  EXPECT_EQ(store->bytes(), 0u);
  for (size_t s = 0; s < 4; ++s) {
    const int64_t seen = expected.starts[s + 1] - expected.starts[s] - 1;  // nothing follows the last token
    for (const auto& [a, b] : {std::pair{expected.tapped, given.tapped}, {expected.last, given.last}}) {
      EXPECT_TRUE(pacer::test::same_bits(a.narrow(0, expected.starts[s], seen).contiguous(),
                                         b.narrow(0, given.starts[s], seen).contiguous()))
          << s;
    }
  }
}

TEST(FeatureSource, RefusesStatesWithOtherBitsThanItsOwn) {
  const Sources sources;
  FeatureSource library = sources.make(4, 0);
  EXPECT_THROW(library.use_states(std::make_shared<StateStore>(kTaps, 1 << 20)), Error);
  FeatureSource decoding(sources.target, sources.rows, kTaps, {4, 0, true});
  EXPECT_THROW(decoding.use_states(std::make_shared<StateStore>(target::Taps{0, 1, 5}, 1 << 20)), Error);
}

TEST(StateStore, GivesARowOnceAndOnlyForItsOwnTokens) {
  StateStore store({0}, 1000);
  const auto states = [](int64_t rows, std::vector<float> log_sums = {}) {
    return KeptStates{{at::ones({rows, 1, 4}), at::ones({rows, 4})}, std::move(log_sums)};
  };
  EXPECT_TRUE(store.put("a", {1, 2, 3}, states(2)));
  EXPECT_TRUE(store.put("b", {1, 2, 3}, states(3)));
  EXPECT_TRUE(store.put("c", {1, 2, 3, 4}, states(3, {0.5f, 1.5f, 2.5f})));
  EXPECT_THROW(store.put("a", {1, 2, 3}, states(3)), Error);
  EXPECT_THROW(store.put("d", {1, 2, 3}, states(1)), Error);
  EXPECT_THROW(store.put("d", {1, 2}, states(2, {1, 2})), Error) << "the first token was chosen from nothing";
  EXPECT_FALSE(store.put("e", std::vector<int64_t>(40, 1), states(40)));  // no room
  EXPECT_FALSE(store.take("z", {1, 2, 3}));
  const auto cut = store.take("c", {1, 2});  // on the right
  EXPECT_EQ(cut->states.last.size(0), 2);
  EXPECT_EQ(cut->log_sums, std::vector<float>{0.5f});
  EXPECT_EQ(store.take("a", {1, 2, 3})->states.tapped.size(0), 2);
  EXPECT_FALSE(store.take("a", {1, 2, 3}));
  EXPECT_FALSE(store.take("b", {1, 5, 3}));
  EXPECT_EQ(store.bytes(), 0u);
}

}  // namespace
}  // namespace pacer::train
