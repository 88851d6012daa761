// A step is cut into parts so that its memory does not grow with its anchors: what that may change, and what it may
// not.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <thread>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "tests/draft/golden_batch.h"
#include "tests/support/kernels.h"

namespace pacer::draft {
namespace {

constexpr int64_t kVocabulary = 101, kLength = 400;

// Notes which threads ask for the embedding: every part does, once.
class WatchedTarget final : public TablesTarget {
 public:
  using TablesTarget::TablesTarget;
  at::Tensor embedding_weight() const override {
    const std::lock_guard guard(lock_);
    ++asked_[std::this_thread::get_id()];
    return TablesTarget::embedding_weight();
  }
  std::map<std::thread::id, int> asked() const { return asked_; }

 private:
  mutable std::mutex lock_;
  mutable std::map<std::thread::id, int> asked_;
};

struct Step {
  std::map<std::string, at::Tensor> gradients;
  std::map<std::thread::id, int> parts;  // by thread
  LossTerms terms;
};

Step step(const std::string& folder, const LossOptions& options, at::ScalarType dtype, int64_t blocks) {
  const GoldenBatch golden(folder);
  DraftConfig config = golden.config();
  config.layer.vocab_size = kVocabulary;
  const int64_t width = config.layer.hidden_size;
  at::manual_seed(5);
  const auto target = std::make_shared<WatchedTarget>(at::randn({kVocabulary, width}).to(dtype),
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
  const BlockPlan plan = training->plan(batch, blocks, {1, 1});
  EXPECT_EQ(plan.blocks(), blocks);
  Step step;
  step.terms = training->loss(batch, plan, {0.01, 0.02, config.confidence_head ? 0.01 : 0.0});
  step.parts = target->asked();
  for (const auto& [name, master] : training->parameters()) {
    if (master.grad().defined()) step.gradients[name] = master.grad().clone();
  }
  return step;
}

std::map<std::string, at::Tensor> gradients(const std::string& folder, const LossOptions& options,
                                            at::ScalarType dtype) {
  return step(folder, options, dtype, 80).gradients;
}

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_;
};

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

TEST(StepInLanes, GradientsAreThoseOfOneThreadUpToRoundingAndTheSameBitsEachTime) {
  const test::OwnKernels own_kernels;  // the plain path has one lane
  constexpr int64_t kBlocks = 300;
  for (const char* folder : kFolders) {
    const LossOptions options{.anchors_at_once = 120};
    const auto with = [&](int threads) {
      const Threads set(threads);
      return step(folder, options, at::kFloat, kBlocks);
    };
    const Step one = with(1), two = with(2), again = with(2);
    EXPECT_EQ(one.parts.size(), 1U);
    ASSERT_EQ(two.parts.size(), 2U) << folder;
    EXPECT_EQ(two.parts.begin()->second, two.parts.rbegin()->second) << "as many parts for each thread";
    EXPECT_EQ(two.parts.begin()->second, 3) << "60 of 300 blocks at once in each of two lanes";
    ASSERT_EQ(two.gradients.size(), one.gradients.size());
    for (const auto& [name, gradient] : one.gradients) {
      EXPECT_TRUE(test::close_l2(two.gradients.at(name), gradient, 1e-6)) << folder << " " << name;
      EXPECT_TRUE(test::same_bits(two.gradients.at(name), again.gradients.at(name))) << folder << " " << name;
    }
    EXPECT_NEAR(two.terms.ce_sum, one.terms.ce_sum, 1e-6 * one.terms.ce_sum);
    EXPECT_NEAR(two.terms.l1_sum, one.terms.l1_sum, 1e-6 * one.terms.l1_sum);
    EXPECT_EQ(two.terms.label_total, one.terms.label_total);
  }
}

TEST(StepInLanes, ThereAreAsManyAsThreadsWhereEachHasEnoughToDo) {
  constexpr int64_t kSmallHead = 3072 * 576 * 2, kLargeHead = 49152 * 576 * 2;
  EXPECT_EQ(training_lanes({}, 512, kSmallHead, 2), 2);
  EXPECT_EQ(training_lanes({}, 511, kSmallHead, 2), 1) << "short parts cost more than threads that share them";
  EXPECT_EQ(training_lanes({}, 100'000, kLargeHead, 2), 1) << "every lane would read it from memory";
  EXPECT_EQ(training_lanes({}, 100'000, kSmallHead, 1), 1);
  EXPECT_EQ(training_lanes({}, 100'000, kSmallHead, 4), 4);
  EXPECT_EQ(training_lanes({}, 100'000, kSmallHead, 5), 1) << "memory grows with lanes";
  EXPECT_EQ(training_lanes({.fixed_parts = true}, 100'000, kSmallHead, 2), 1) << "sums of fixed parts have one order";
}

TEST(StepInParts, TheLargestPartIsWhatWasAllowed) {
  constexpr int64_t kNarrow = 576 * 2, kWide = 1024 * 2;  // bytes of a hidden row
  EXPECT_EQ(blocks_of_a_part({}, 160, 7, kNarrow, 1), 160) << "1120 slots";
  EXPECT_EQ(blocks_of_a_part({}, 146, 7, kWide, 1), 73) << "512 slots";
  EXPECT_EQ(blocks_of_a_part({}, 161, 7, kNarrow, 1), 81) << "two parts of about the same size";
  EXPECT_EQ(blocks_of_a_part({}, 3, 5000, kNarrow, 1), 1);
  EXPECT_EQ(blocks_of_a_part({.anchors_at_once = 10}, 35, 7, kNarrow, 1), 9);
  EXPECT_EQ(blocks_of_a_part({.anchors_at_once = 10}, 35, 7, kNarrow, 2), 5) << "two lanes have ten together";
  EXPECT_EQ(blocks_of_a_part({.anchors_at_once = 1}, 35, 7, kNarrow, 2), 1);
  EXPECT_EQ(blocks_of_a_part({}, 161, 7, kNarrow, 2), 81) << "two lanes, two parts";
  EXPECT_EQ(blocks_of_a_part({}, 400, 7, kNarrow, 2), 100) << "four parts and not three";
  EXPECT_EQ(blocks_of_a_part({.fixed_parts = true}, 35, 7, kNarrow, 1), LossOptions::kExactPart);
  EXPECT_THROW(
      blocks_of_a_part({.anchors_at_once = LossOptions::kExactPart - 1, .fixed_parts = true}, 35, 7, kNarrow, 1),
      Error);
}

TEST(LogitsBytes, HoldAsManyRowsOfALargeVocabularyAsOfASmallOne) {
  EXPECT_EQ(logits_bytes({}, 49152, 2), 64 << 20) << "at least";
  EXPECT_EQ(logits_bytes({}, 100'000, 1), 330 * 100'000 * 4);
  EXPECT_EQ(logits_bytes({}, 256'000, 1), 192 << 20) << "at most";
  EXPECT_EQ(logits_bytes({.tile_bytes = 1 << 20}, 256'000, 1), 1 << 20) << "as it was asked for";
  EXPECT_EQ(logits_bytes({.tile_bytes = 1 << 20}, 256'000, 2), 1 << 19) << "for all lanes together";
}

}  // namespace
}  // namespace pacer::draft
