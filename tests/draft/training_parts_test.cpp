// A step is cut into parts so that its memory does not grow with its anchors: what that may change, and what it may
// not.
#include <gtest/gtest.h>

#include <map>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "tests/draft/golden_batch.h"

namespace pacer::draft {
namespace {

constexpr int64_t kVocabulary = 101, kLength = 120;

std::map<std::string, at::Tensor> gradients(const std::string& folder, LossOptions options, at::ScalarType dtype) {
  const GoldenBatch golden(folder);
  DraftConfig config = golden.config();
  config.layer.vocab_size = kVocabulary;
  const int64_t width = config.layer.hidden_size;
  at::manual_seed(5);
  const auto target = std::make_shared<TablesTarget>(at::randn({kVocabulary, width}).to(dtype),
                                                     at::randn({kVocabulary, width}).to(dtype), config.target_layers);
  FeatureBatch batch;
  batch.ids = at::zeros({kLength}, at::kLong);
  for (int64_t i = 0; i < kLength; ++i) batch.ids[i] = i * 37 % kVocabulary;
  batch.supervised = at::zeros({kLength}, at::kByte) + 1;
  batch.starts = {0, kLength};
  batch.sample_ids = {1};
  batch.tapped = at::randn({kLength, static_cast<int64_t>(config.target_layer_ids.size()), width}).to(dtype);
  batch.last = at::randn({kLength, width}).to(dtype);
  device::Runtime runtime = device::Runtime::open("cpu");
  const auto training = DraftTraining::create(config, options, target, 3, dtype, runtime);
  const BlockPlan plan = training->plan(batch, 80, {1, 1});
  EXPECT_EQ(plan.blocks(), 80);
  training->loss(batch, plan, {0.01, 0.02, config.confidence_head ? 0.01 : 0.0});
  std::map<std::string, at::Tensor> found;
  for (const auto& [name, master] : training->parameters()) {
    if (master.grad().defined()) found[name] = master.grad().clone();
  }
  return found;
}

const char* const kFolders[] = {"dspark/vanilla", "dspark/gated", "dspark/rnn", "dspark/dflash"};

TEST(StepInParts, GradientsAreTheSameUpToRounding) {
  for (const char* folder : kFolders) {
    const auto whole = gradients(folder, {.anchors_at_once = 80}, at::kFloat);
    for (const int64_t at_once : {1, 7, 33}) {
      const auto parts = gradients(folder, {.anchors_at_once = at_once}, at::kFloat);
      ASSERT_EQ(parts.size(), whole.size());
      for (const auto& [name, gradient] : whole) {
        EXPECT_TRUE(test::close_l2(parts.at(name), gradient, 1e-6)) << folder << " " << name << " " << at_once;
      }
    }
  }
}

TEST(StepInParts, FixedPartsGiveTheSameBitsWhateverMayExistAtOnce) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    for (const char* folder : kFolders) {
      const auto fixed = [&](int64_t at_once) {
        return gradients(folder, {.anchors_at_once = at_once, .fixed_parts = true}, dtype);
      };
      const auto first = fixed(0);
      for (const int64_t at_once : {LossOptions::kExactPart, int64_t{50}, int64_t{1000}}) {
        const auto other = fixed(at_once);
        for (const auto& [name, gradient] : first) {
          EXPECT_TRUE(test::same_bits(other.at(name), gradient)) << folder << " " << name << " " << at_once;
        }
      }
    }
  }
}

TEST(StepInParts, TheLargestPartIsWhatWasAllowed) {
  constexpr int64_t kNarrow = 576 * 2, kWide = 1024 * 2;  // bytes of a hidden row
  EXPECT_EQ(blocks_of_a_part({}, 160, 7, kNarrow), 160) << "1120 slots";
  EXPECT_EQ(blocks_of_a_part({}, 146, 7, kWide), 73) << "512 slots";
  EXPECT_EQ(blocks_of_a_part({}, 161, 7, kNarrow), 81) << "two parts of about the same size";
  EXPECT_EQ(blocks_of_a_part({}, 3, 5000, kNarrow), 1);
  EXPECT_EQ(blocks_of_a_part({.anchors_at_once = 10}, 35, 7, kNarrow), 9);
  EXPECT_EQ(blocks_of_a_part({.fixed_parts = true}, 35, 7, kNarrow), LossOptions::kExactPart);
  EXPECT_THROW(blocks_of_a_part({.anchors_at_once = LossOptions::kExactPart - 1, .fixed_parts = true}, 35, 7, kNarrow),
               Error);
}

TEST(LogitsBytes, HoldAsManyRowsOfALargeVocabularyAsOfASmallOne) {
  EXPECT_EQ(logits_bytes({}, 49152), 64 << 20) << "at least";
  EXPECT_EQ(logits_bytes({}, 100'000), 330 * 100'000 * 4);
  EXPECT_EQ(logits_bytes({}, 256'000), 192 << 20) << "at most";
  EXPECT_EQ(logits_bytes({.tile_bytes = 1 << 20}, 256'000), 1 << 20) << "as it was asked for";
}

}  // namespace
}  // namespace pacer::draft
