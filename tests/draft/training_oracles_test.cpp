// What must hold whatever the numbers are: slopes, the two faces of a draft, memory, warm starts.
#include <gtest/gtest.h>

#include <fstream>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/softmax.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/draft/warm_start.h"
#include "tests/draft/golden_batch.h"
#include "tests/support/kernels.h"

namespace pacer::draft {
namespace {

double objective(const LossScale& scale, const LossTerms& terms) {
  return scale.ce * terms.ce_sum + scale.l1 * terms.l1_sum;
}

// Central differences along a random direction of every parameter. The confidence term is left out: its target moves
// with the draft, and by definition no gradient follows it.
TEST(DraftOracles, GradientsAreTheSlopesOfTheLoss) {
  for (const char* folder : {"dspark/rnn", "dspark/gated", "specforge_dflash/dflash_sliding"}) {
    const GoldenBatch golden(folder);
    LossOptions options = golden.options();
    const bool with_l1 = golden.config().markov != MarkovKind::none;
    const auto rows = golden.all_rows();
    const FeatureBatch batch = golden.features(rows);
    const BlockPlan plan = golden.plan(options, batch, rows);
    const LossScale scale{.ce = 0.05, .l1 = with_l1 ? 0.1 : 0.0};
    const auto training = golden.training(options);
    training->loss(batch, plan, scale);
    for (auto& [name, master] : training->parameters()) {
      if (!master.grad().defined()) continue;  // the confidence head
      at::Tensor direction = at::randn(master.sizes());
      direction = direction / direction.norm();
      const double slope = (master.grad() * direction).sum().item<double>();
      const double step = 2e-3;
      double values[2];
      for (const int side : {0, 1}) {
        const at::NoGradGuard no_grad;
        const at::Tensor before = master.detach().clone();
        master.add_(direction, side == 0 ? -step : step);
        training->refresh();
        values[side] = objective(scale, training->loss(batch, plan, {}, /*backward=*/false));
        master.copy_(before);
        training->refresh();
      }
      EXPECT_NEAR((values[1] - values[0]) / (2 * step), slope, 0.02 * std::abs(slope) + 2e-3) << folder << " " << name;
    }
  }
}

// Training sees the slots of a block all at once under teacher forcing; decoding makes them one by one. At the same
// anchor, with the same previous tokens, both must mean the same distribution: their cross-entropies are equal.
TEST(DraftOracles, TeacherForcedTrainingAndProposingAgree) {
  for (const char* folder : {"dspark/vanilla", "dspark/gated", "dspark/rnn", "dspark/dflash", "specforge_dflash/dflash",
                             "specforge_dflash/dflash_sliding", "specforge_dflash/dspark"}) {
    const GoldenBatch golden(folder);
    const auto target = golden.target();
    const auto proposer = load_block_proposer(test::golden(folder), target);
    const FeatureBatch batch = golden.features({0});
    const std::vector<int64_t> ids = to_ids(batch.ids), mask = to_ids(batch.supervised);
    const std::vector<uint8_t> supervised(mask.begin(), mask.end());
    const DraftConfig config = golden.config();
    const LossOptions options{.decay_gamma = 0};
    const int64_t offset = config.sample_from_anchor ? 1 : 0, first_slot = 1 - offset;
    const auto training = golden.training(options);
    const std::vector<int64_t> anchors = golden.anchors({0}).front();
    for (const int64_t anchor : anchors) {
      const BlockPlan plan =
          plan_blocks(config, options, {ids, supervised, batch.starts, batch.sample_ids}, {{anchor}});
      const LossTerms terms = training->loss(batch, plan, {}, /*backward=*/false);
      const auto begin = ids.begin();
      proposer->start(std::vector<int64_t>(begin, begin + anchor), batch.tapped.slice(0, 0, anchor));
      double cross_entropy = 0;
      int64_t slot = first_slot;
      proposer->propose(ids[static_cast<size_t>(anchor)], proposer->max_tokens(), false,
                        [&](const at::Tensor& logits, at::Tensor* law) {
                          *law = at::softmax(logits, 0);
                          const int64_t label = anchor + slot + offset;
                          const int64_t token =
                              label < static_cast<int64_t>(ids.size()) ? ids[static_cast<size_t>(label)] : 0;
                          if (plan.label_row[static_cast<size_t>(slot)] >= 0) {
                            cross_entropy -= std::log((*law)[token].item<double>());
                          }
                          ++slot;
                          return token;  // teacher forcing
                        });
      EXPECT_NEAR(cross_entropy, terms.ce_sum, 1e-4 * (1 + terms.ce_sum)) << folder << " anchor " << anchor;
    }
  }
}

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}
bool reset_peak() { return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5" << std::flush); }

// 30,000 tokens of vocabulary: whole logits of 64 anchors would be 8 x 15 MB for the draft alone.
// Own kernels: the plain path keeps rows of all slots of a part, of which there are as many as here.
TEST(DraftOracles, PeakMemoryOfAStepIsFlatInItsAnchors) {
  const test::OwnKernels own;
  if (!reset_peak()) GTEST_SKIP() << "the peak of this process cannot be reset";
  constexpr int64_t kVocabulary = 30000, kLength = 160;
  DraftConfig config = GoldenBatch("dspark/vanilla").config();
  config.layer.vocab_size = kVocabulary;
  config.block_size = 8;
  const auto target =
      std::make_shared<TablesTarget>(at::randn({kVocabulary, 32}), at::randn({kVocabulary, 32}), config.target_layers);
  device::Runtime runtime = device::Runtime::open("cpu");
  LossOptions options;
  options.tile_bytes = 8 << 20;
  const auto training = DraftTraining::create(config, options, target, 1, at::kFloat, runtime);
  FeatureBatch batch;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < kLength; ++i) ids.push_back(i * 37 % kVocabulary);
  batch.ids = at::from_blob(ids.data(), {kLength}, at::kLong).clone();
  batch.supervised = at::zeros({kLength}, at::kByte) + 1;
  batch.starts = {0, kLength};
  batch.sample_ids = {1};
  batch.tapped = at::randn({kLength, 3, 32}), batch.last = at::randn({kLength, 32});
  const auto extra = [&](int64_t anchors) {
    const BlockPlan plan = training->plan(batch, anchors, {1, 1});
    training->loss(batch, plan, {0.1, 0.1, 0.1});  // buffers and gradients are there from now on
    reset_peak();
    const int64_t before = peak_bytes();
    training->loss(batch, plan, {0.1, 0.1, 0.1});
    return peak_bytes() - before;
  };
  extra(2);
  const int64_t few = extra(8), many = extra(128);
  EXPECT_LT(many, few + (24 << 20)) << few;  // whole logits: 128 x 8 x 30,000 x 4 bytes = 123 MB
}

TEST(WarmStart, CopiesTheLastLayersAndMeasuresTheNorms) {
  const auto load = [](const char* folder) {
    device::Runtime runtime = device::Runtime::open("cpu");
    return std::shared_ptr<const target::Target>(target::Target::load(test::golden(folder), at::kFloat, runtime));
  };
  const auto target = load("llama_tiny/default");
  DraftConfig config = DraftConfig::for_target(target->config(), {0, target->config().layers - 2});
  config.layer.layers = config.layers = 2;
  config.mask_token_id = 3;
  device::Runtime runtime = device::Runtime::open("cpu");
  const auto training = DraftTraining::create(config, {}, target, 1, at::kFloat, runtime);
  const at::Tensor noise = training->parameters().at("fc.weight").detach().clone();
  FeatureBatch sample;
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < 20; ++i) ids.push_back(i * 7 % target->config().vocab_size);
  sample.ids = at::from_blob(ids.data(), {20}, at::kLong).clone();
  sample.starts = {0, 12, 20};
  training->warm_start(sample);

  const auto& weights = training->parameters();
  const int64_t layers = target->config().layers, hidden = target->config().hidden_size;
  for (const int64_t i : {0, 1}) {
    const std::string from = "model.layers." + std::to_string(layers - 2 + i) + ".", to = "layers." + std::to_string(i);
    EXPECT_TRUE(
        test::same_bits(weights.at(to + ".mlp.down_proj.weight"), target->weight(from + "mlp.down_proj.weight")));
    EXPECT_TRUE(
        test::same_bits(weights.at(to + ".self_attn.k_proj.weight"), target->weight(from + "self_attn.k_proj.weight")));
  }
  EXPECT_TRUE(test::same_bits(weights.at("norm.weight"), target->weight("model.norm.weight")));
  const at::Tensor fc = weights.at("fc.weight").detach();
  EXPECT_TRUE(test::close(fc.slice(1, 0, hidden), noise.slice(1, 0, hidden) * 0.1, 1e-7, 1e-6));
  EXPECT_NEAR(fc.slice(1, hidden).diagonal().mean().item<double>(), 1.0, 0.01);

  // Attention logits keep their size: the normed q has the mean square per channel that the target's q has.
  target::TokenBatch tokens =
      target::TokenBatch::packed({{ids.begin(), ids.begin() + 12}, {ids.begin() + 12, ids.end()}});
  const at::Tensor stream = target->forward(tokens, {layers - 2}).tapped.select(1, 0);
  const std::string last = "model.layers." + std::to_string(layers - 1) + ".";
  const at::Tensor scale = (stream.square().mean(1, true) + target->config().rms_epsilon).rsqrt();
  const at::Tensor rows = stream * scale * target->weight(last + "input_layernorm.weight");
  const at::Tensor q = at::matmul(rows, target->weight(last + "self_attn.q_proj.weight").t());
  const at::Tensor per_channel = q.view({-1, target->config().head_dim}).square().mean(0);
  EXPECT_TRUE(test::close(weights.at("layers.1.self_attn.q_norm.weight").detach().square(), per_channel, 1e-6, 1e-4));
}

TEST(WarmStart, SaysWhichSizeDiffers) {
  device::Runtime runtime = device::Runtime::open("cpu");
  const std::shared_ptr<const target::Target> target =
      target::Target::load(test::golden("dspark/target"), at::kFloat, runtime);
  DraftConfig config = DraftConfig::for_target(target->config());
  config.mask_token_id = 96;
  config.layer.intermediate_size = 16;
  const auto training = DraftTraining::create(config, {}, target, 1, at::kFloat, runtime);
  try {
    training->warm_start({});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("intermediate_size is 16"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pacer::draft
