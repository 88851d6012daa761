#include "pacer/draft/block_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::draft {
namespace {

std::vector<uint8_t> mask_of(const at::Tensor& row) {
  const at::Tensor wide = row.to(at::kLong).contiguous();
  const int64_t* value = wide.const_data_ptr<int64_t>();
  return {value, value + wide.numel()};
}
std::vector<int64_t> ids_of(const at::Tensor& row) {
  const at::Tensor wide = row.to(at::kLong).contiguous();
  const int64_t* value = wide.const_data_ptr<int64_t>();
  return {value, value + wide.numel()};
}

TEST(Anchors, CandidatesAreTheGoldenOnes) {
  for (const auto& entry : test::golden_json("dspark/anchors.json")) {
    const auto mask = entry["loss_mask"].get<std::vector<uint8_t>>();
    EXPECT_EQ(anchor_candidates(mask), entry["eligible"].get<std::vector<int64_t>>());
  }
}

TEST(Anchors, ExplicitKeysChooseTheGoldenOnes) {
  const test::GoldenTensors golden("dspark/anchors.safetensors");
  for (const std::string group : {"0.", "1.", "2."}) {
    const at::Tensor masks = golden[group + "loss_mask"], keys = golden[group + "random_keys"];
    const at::Tensor expected = golden[group + "anchor_positions"], keep = golden[group + "keep"];
    for (int64_t row = 0; row < masks.size(0); ++row) {
      const std::vector<int64_t> anchors =
          choose_anchors(anchor_candidates(mask_of(masks[row])), expected.size(1),
                         [&](int64_t position) { return keys[row][position].item<double>(); });
      std::vector<int64_t> live;
      for (int64_t i = 0; i < keep.size(1); ++i) {
        if (keep[row][i].item<bool>()) live.push_back(expected[row][i].item<int64_t>());
      }
      EXPECT_EQ(anchors, live) << group << row;
    }
  }
}

// The golden batches as packed sequences of full length; padding is never supervised, so it changes nothing.
struct Batch {
  std::vector<int64_t> ids, starts{0};
  std::vector<uint8_t> supervised;
  std::vector<uint64_t> sample_ids;
  std::vector<std::vector<int64_t>> anchors;
  PackedTokens tokens() const { return {ids, supervised, starts, sample_ids}; }
};
Batch golden_batch(const test::GoldenTensors& golden) {
  Batch batch;
  const at::Tensor ids = golden["input_ids"], mask = golden["loss_mask"];
  const at::Tensor anchors = golden["anchor_positions"], keep = golden["block_keep_mask"];
  for (int64_t row = 0; row < ids.size(0); ++row) {
    const std::vector<int64_t> row_ids = ids_of(ids[row]);
    const std::vector<uint8_t> row_mask = mask_of(mask[row]);
    batch.ids.insert(batch.ids.end(), row_ids.begin(), row_ids.end());
    batch.supervised.insert(batch.supervised.end(), row_mask.begin(), row_mask.end());
    batch.starts.push_back(static_cast<int64_t>(batch.ids.size()));
    batch.sample_ids.push_back(static_cast<uint64_t>(row));
    batch.anchors.emplace_back();
    for (int64_t i = 0; i < keep.size(1); ++i) {
      if (keep[row][i].item<bool>()) batch.anchors.back().push_back(anchors[row][i].item<int64_t>());
    }
  }
  return batch;
}

DraftConfig config_with(int64_t block_size, bool sample_from_anchor) {
  DraftConfig config;
  config.block_size = block_size;
  config.sample_from_anchor = sample_from_anchor;
  config.layer.vocab_size = 97;
  return config;
}

TEST(BlockPlan, LabelsAndWeightsAreTheGoldenOnes) {
  for (const char* name : {"vanilla", "confidence_plain"}) {
    const test::GoldenTensors golden(std::string("dspark/") + name + "/train.safetensors");
    const auto settings = test::golden_json(std::string("dspark/") + name + "/train.json");
    const Batch batch = golden_batch(golden);
    LossOptions options;
    options.decay_gamma = settings["loss_decay_gamma"].is_null() ? 0.0 : settings["loss_decay_gamma"].get<double>();
    const BlockPlan plan =
        plan_blocks(config_with(settings["block_size"], true), options, batch.tokens(), batch.anchors);

    const at::Tensor weight = golden["loss_weight"], labels = golden["target_ids"], keep = golden["block_keep_mask"];
    size_t slot = 0;
    int64_t block = 0;
    for (int64_t row = 0; row < keep.size(0); ++row) {
      for (int64_t i = 0; i < keep.size(1); ++i) {
        if (!keep[row][i].item<bool>()) continue;  // dead blocks are not in the plan
        EXPECT_EQ(plan.sequence[static_cast<size_t>(block)], row);
        ++block;
        for (int64_t k = 0; k < plan.block_size; ++k, ++slot) {
          EXPECT_NEAR(plan.weight[slot], weight[row][i][k].item<float>(), 1e-6);
          EXPECT_EQ(plan.label_row[slot] >= 0, golden["eval_mask"][row][i][k].item<bool>());
          if (plan.label_row[slot] < 0) continue;
          EXPECT_EQ(batch.ids[static_cast<size_t>(plan.label_row[slot])], labels[row][i][k].item<int64_t>());
          EXPECT_EQ(plan.teacher_row[slot], plan.label_row[slot] - 1);
          EXPECT_EQ(plan.previous_row[slot], plan.label_row[slot] - 1);
        }
      }
    }
    EXPECT_EQ(block, plan.blocks());
    EXPECT_NEAR(plan.weight_sum, golden["term.l1_loss_den"].item<double>(), 1e-5);
    EXPECT_NEAR(plan.ce_weight_sum, golden["term.ce_loss_den"].item<double>(), 1e-5);
  }
}

TEST(BlockPlan, TheAnchorSlotLayoutSupervisesEachSlotForItself) {
  const test::GoldenTensors golden("specforge_dflash/dflash/train.safetensors");
  const auto settings = test::golden_json("specforge_dflash/dflash/train.json");
  const Batch batch = golden_batch(golden);
  LossOptions options;
  options.decay_gamma = settings["loss_decay_gamma"];
  const BlockPlan plan =
      plan_blocks(config_with(settings["block_size"], false), options, batch.tokens(), batch.anchors);
  EXPECT_NEAR(plan.ce_weight_sum, golden["loss_den"].item<double>(), 1e-5);

  // A hole in the answer ends a block of the other layout, and not one of this.
  const std::vector<int64_t> ids{10, 11, 12, 13, 14, 15}, starts{0, 6};
  const std::vector<uint8_t> mask{1, 1, 0, 1, 1, 1};
  const std::vector<uint64_t> sample{0};
  const PackedTokens tokens{ids, mask, starts, sample};
  const BlockPlan own = plan_blocks(config_with(4, false), {}, tokens, {{0}});
  EXPECT_EQ(own.label_row, (std::vector<int64_t>{-1, 1, -1, 3}));
  EXPECT_EQ(own.previous_row, (std::vector<int64_t>{0, 0, 1, 2}));
  EXPECT_NEAR(own.weight[3], std::exp(-2.0 / 4.0), 1e-6);
  const BlockPlan prefix = plan_blocks(config_with(4, true), {}, tokens, {{0}});
  EXPECT_EQ(prefix.label_row, (std::vector<int64_t>{1, -1, -1, -1}));
}

TEST(BlockPlan, LabelsOutsideAReducedVocabularyLeaveTheCrossEntropyOnly) {
  DraftConfig config = config_with(3, true);
  config.kept_ids = {11, 13};
  const std::vector<int64_t> ids{10, 11, 12, 13}, starts{0, 4};
  const std::vector<uint8_t> mask{1, 1, 1, 1};
  const std::vector<uint64_t> sample{0};
  LossOptions options;
  options.decay_gamma = 0;
  const BlockPlan plan = plan_blocks(config, options, {ids, mask, starts, sample}, {{0}});
  EXPECT_EQ(plan.label_row, (std::vector<int64_t>{1, 2, 3}));  // 12 is outside and does not end the block
  EXPECT_EQ(plan.weight_sum, 3);
  EXPECT_EQ(plan.ce_weight_sum, 2);
}

TEST(BlockPlan, RefusesAnchorsThatAreNotCandidates) {
  const std::vector<int64_t> ids{10, 11, 12}, starts{0, 3};
  const std::vector<uint8_t> mask{0, 1, 1};
  const std::vector<uint64_t> sample{0};
  EXPECT_THROW(plan_blocks(config_with(2, true), {}, {ids, mask, starts, sample}, {{0}}), Error);
  EXPECT_THROW(plan_blocks(config_with(2, true), {}, {ids, mask, starts, sample}, {{2}}), Error);
  EXPECT_THROW(plan_blocks(config_with(2, true), {}, {ids, mask, starts, sample}, {{1, 1}}), Error);
}

TEST(BlockPlanRandom, DependsOnSeedStepAndSampleOnly) {
  const std::vector<uint8_t> mask(40, 1), both(80, 1);
  std::vector<int64_t> ids(80);
  const std::vector<int64_t> one{0, 40}, two{0, 40, 80};
  const std::vector<uint64_t> first{5}, second{9}, pair{9, 5};
  const DraftConfig config = config_with(4, true);
  const auto anchors = [&](std::span<const uint8_t> m, std::span<const int64_t> starts,
                           std::span<const uint64_t> samples, StepRandom random) {
    return plan_blocks(config, {}, {std::span(ids).first(m.size()), m, starts, samples}, 6, random).anchor;
  };
  const auto alone = anchors(mask, one, first, {1, 2}), other = anchors(mask, one, second, {1, 2});
  std::vector<int64_t> expected = other;
  expected.insert(expected.end(), alone.begin(), alone.end());
  EXPECT_EQ(anchors(both, two, pair, {1, 2}), expected);  // neither the batch nor the place in it matters
  EXPECT_NE(alone, other);
  EXPECT_NE(alone, anchors(mask, one, first, {1, 3}));
  EXPECT_NE(alone, anchors(mask, one, first, {2, 2}));
}

TEST(BlockPlanRandom, EveryCandidateIsEquallyLikely) {
  const std::vector<uint8_t> mask(11, 1);  // 10 candidates
  const std::vector<int64_t> ids(11), starts{0, 11};
  const std::vector<uint64_t> sample{3};
  std::vector<int64_t> hits(10);
  constexpr int64_t kSteps = 4000, kKept = 3;
  for (uint64_t step = 0; step < kSteps; ++step) {
    for (const int64_t anchor :
         plan_blocks(config_with(2, true), {}, {ids, mask, starts, sample}, kKept, {1, step}).anchor) {
      ++hits[static_cast<size_t>(anchor)];
    }
  }
  const double mean = kSteps * kKept / 10.0, deviation = std::sqrt(kSteps * 0.3 * 0.7);
  for (const int64_t count : hits) EXPECT_NEAR(static_cast<double>(count), mean, 4.5 * deviation);
}

RC_GTEST_PROP(BlockPlanProperties, HoldsForAnyMask, ()) {
  const auto mask = *rc::gen::container<std::vector<uint8_t>>(rc::gen::inRange<uint8_t>(0, 2));
  const int64_t block = *rc::gen::inRange<int64_t>(2, 7), count = *rc::gen::inRange<int64_t>(0, 9);
  const bool from_anchor = *rc::gen::arbitrary<bool>();
  const std::vector<int64_t> ids(mask.size(), 1), starts{0, static_cast<int64_t>(mask.size())};
  const std::vector<uint64_t> sample{1};
  const BlockPlan plan = plan_blocks(config_with(block, from_anchor), {}, {ids, mask, starts, sample}, count, {7, 1});
  const auto candidates = anchor_candidates(mask);
  RC_ASSERT(plan.blocks() == std::min<int64_t>(count, static_cast<int64_t>(candidates.size())));
  RC_ASSERT(std::is_sorted(plan.anchor.begin(), plan.anchor.end()));
  RC_ASSERT(std::set<int64_t>(plan.anchor.begin(), plan.anchor.end()).size() == plan.anchor.size());
  for (int64_t b = 0; b < plan.blocks(); ++b) {
    bool live = false;
    for (int64_t k = 0; k < block; ++k) {
      const auto slot = static_cast<size_t>(b * block + k);
      const int64_t label = plan.label_row[slot];
      RC_ASSERT((plan.weight[slot] > 0) == (label >= 0));
      if (label < 0) continue;
      live = true;
      RC_ASSERT(label == plan.anchor[static_cast<size_t>(b)] + k + (from_anchor ? 1 : 0));
      RC_ASSERT(mask[static_cast<size_t>(label)] == 1);
    }
    RC_ASSERT(live);
  }
}

}  // namespace
}  // namespace pacer::draft
