// SpecForge's DFlash family: the anchor-slot layout, its weights, sliding layers and D-PACE.
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/draft/backbone.h"
#include "pacer/draft/block_batch.h"
#include "pacer/draft/training_loss.h"
#include "pacer/target/rope_frequencies.h"
#include "tests/draft/golden_batch.h"

namespace pacer::draft {
namespace {

TEST(SpecForgeTraining, DflashLossAccuracyAndGradientsAreGolden) {
  const std::string golden_full = "specforge_dflash/dflash";
  for (const std::string& folder : {golden_full, golden_full + "_sliding"}) {
    const GoldenBatch golden(folder);
    const LossOptions options = golden.options();
    const auto rows = golden.all_rows();
    const FeatureBatch batch = golden.features(rows);
    const BlockPlan plan = golden.plan(options, batch, rows);
    const auto training = golden.training(options);
    const LossTerms terms = training->loss(batch, plan, {.ce = 1.0 / plan.ce_weight_sum});
    expect_relative(terms.ce_sum / terms.ce_weight, golden.train["loss"].item<double>(), 1e-5, folder);
    if (golden.train.has("loss_num")) {
      expect_relative(terms.ce_sum, golden.train["loss_num"].item<double>(), 1e-5, folder);
      expect_relative(terms.ce_weight, golden.train["loss_den"].item<double>(), 1e-5, folder);
    }
    if (golden.train.has("accuracy")) {
      expect_relative(static_cast<double>(terms.correct) / static_cast<double>(terms.label_total),
                      golden.train["accuracy"].item<double>(), 1e-5, folder);
    }
    // the file of the sliding case holds three of them
    expect_gradients(*training, golden.train, folder == golden_full ? training->parameters().size() : 3);
  }
}

TEST(SpecForgeTraining, HiddenRowsOfFullAndSlidingLayersAreGolden) {
  for (const char* folder : {"specforge_dflash/dflash", "specforge_dflash/dflash_sliding", "specforge_dflash/dspark"}) {
    const GoldenBatch golden(folder);
    if (!golden.train.has("draft_hidden")) continue;
    const auto rows = golden.all_rows();
    const FeatureBatch features = golden.features(rows);
    const DraftConfig config = golden.config();
    const BlockBatch blocks = block_batch(config, golden.plan({}, features, rows), host_tokens(features));
    DraftWeights weights;
    for (const auto& [parameter, shape] : parameter_shapes(config)) weights[parameter] = golden.model[parameter];
    const Backbone backbone(config, target::rope_table(config.layer.rope, config.layer.head_dim, 128));
    const BackboneWeights arranged = arrange(config, weights, at::kFloat);
    const at::Tensor context = backbone.context(arranged, features.tapped).index_select(0, blocks.context_rows);
    at::Tensor x = golden.train["embed_tokens"].index_select(0, blocks.ids);
    for (int64_t i = 0; i < config.layers; ++i) {
      const auto& layer = arranged.layers[static_cast<size_t>(i)];
      const KeysValues keys = backbone.context_keys(layer, context, backbone.rope().rows(blocks.context_positions));
      x = backbone.layer(layer, i, x, keys, blocks.layout, backbone.rope().rows(blocks.positions));
    }
    const at::Tensor stored = golden.train["draft_hidden"];
    const at::Tensor expected =
        golden.live_blocks(stored.view({stored.size(0), -1, config.block_size, stored.size(2)})).flatten(0, 1);
    EXPECT_TRUE(test::close(backbone.final_norm(arranged, x), expected)) << folder;
  }
}

TEST(SpecForgeTraining, DpaceLossesAndGradientsAreGolden) {
  const GoldenBatch golden("specforge_dflash/dflash");
  for (const std::string kind : {"dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"}) {
    const std::string file = golden.folder + "/train_" + kind;
    const auto settings = test::golden_json(file + ".json");
    const test::GoldenTensors expected(file + ".safetensors");
    LossOptions options = golden.options();
    options.decay_kind = settings["loss_type"];
    options.dpace_alpha = settings["dpace_alpha"];
    const auto rows = golden.all_rows();
    const FeatureBatch batch = golden.features(rows);
    const BlockPlan plan = golden.plan(options, batch, rows);
    EXPECT_EQ(plan.ce_weight_sum, expected["loss_den"].item<double>()) << kind;
    const auto training = golden.training(options);
    const LossTerms terms = training->loss(batch, plan, {.ce = 1.0 / plan.ce_weight_sum});
    expect_relative(terms.ce_sum, expected["loss_num"].item<double>(), 1e-5, kind);
    expect_gradients(*training, expected, 2);
  }
}

TEST(SpecForgeTraining, DpaceWeightsOfAWorkedBlock) {
  // alpha 0.5, q = (0.8, 0.5, 0.25) behind the anchor's slot: s = (0.9, 0.75, 0.625)
  DraftConfig config;
  config.block_size = 4;
  config.sample_from_anchor = false;
  config.layer.vocab_size = 100;
  const std::vector<int64_t> ids{5, 6, 7, 8}, starts{0, 4};
  const std::vector<uint8_t> mask{1, 1, 1, 1};
  const std::vector<uint64_t> sample{0};
  LossOptions options{.decay_kind = "dpace", .dpace_alpha = 0.5};
  const BlockPlan plan = plan_blocks(config, options, {ids, mask, starts, sample}, {{0}});
  const LiveSlots live = live_slots(config, plan, ids.data());
  ASSERT_EQ(live.slot, (std::vector<int64_t>{1, 2, 3}));
  const std::vector<float> ce{-std::log(0.8f), -std::log(0.5f), -std::log(0.25f)};
  const auto expect = [&](const char* kind, const std::vector<double>& expected) {
    options.decay_kind = kind;
    const std::vector<float> weights = dpace_weights(options, plan, live, ce);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(weights[i], expected[i], 1e-6) << kind << " " << i;
  };
  expect("dpace", {1.996875, 1.096875, 0.421875});
  expect("dpace-cumulative-confidence-only", {0.9, 0.675, 0.421875});
  expect("dpace-continuation-value-only", {2.21875, 1.625, 1.0});
}

TEST(SpecForgeTraining, DsparkLossTermsMetricsAndGradientsAreGolden) {
  const GoldenBatch golden("specforge_dflash/dspark");
  const auto settings = test::golden_json(golden.folder + "/train.json");
  LossOptions options;
  options.ce_alpha = settings["ce"], options.l1_alpha = settings["l1"],
  options.confidence_alpha = settings["confidence"];
  options.decay_gamma = settings["loss_decay_gamma"];
  const auto rows = golden.all_rows();
  const FeatureBatch batch = golden.features(rows);
  const BlockPlan plan = golden.plan(options, batch, rows);
  const auto training = golden.training(options);
  const double weight = plan.weight_sum;
  const LossTerms terms = training->loss(
      batch, plan, {options.ce_alpha / weight, options.l1_alpha / weight, options.confidence_alpha / weight});
  const auto& train = golden.train;
  const auto ratio = [&train](const std::string& name) {
    return train["metric." + name + ".num"].item<double>() / train["metric." + name + ".den"].item<double>();
  };
  expect_relative(terms.ce_sum / weight, ratio("ce_loss"), 1e-5, "ce");
  expect_relative(terms.l1_sum / weight, ratio("l1_loss"), 1e-5, "l1");
  expect_relative(terms.confidence_sum / weight, ratio("confidence_loss"), 1e-5, "confidence");
  expect_relative(terms.confidence_abs_error_sum / weight, ratio("confidence_abs_error"), 1e-5, "abs error");
  expect_relative(terms.tau_sum / static_cast<double>(terms.blocks), ratio("tau_probabilistic"), 1e-5, "tau");
  expect_relative(static_cast<double>(terms.correct) / static_cast<double>(terms.label_total), ratio("acc"), 1e-5,
                  "acc");
  const double loss = (options.ce_alpha * terms.ce_sum + options.l1_alpha * terms.l1_sum +
                       options.confidence_alpha * terms.confidence_sum) /
                      weight;
  expect_relative(loss, train["loss"].item<double>(), 1e-5, "loss");
  expect_gradients(*training, train, training->parameters().size());
}

}  // namespace
}  // namespace pacer::draft
