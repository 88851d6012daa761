#include "pacer/draft/training.h"

#include <gtest/gtest.h>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"
#include "pacer/draft/backbone.h"
#include "pacer/draft/block_batch.h"
#include "pacer/draft/markov.h"
#include "pacer/nn/vocab_loss_product.h"
#include "pacer/target/rope_frequencies.h"
#include "tests/draft/golden_batch.h"

namespace pacer::draft {
namespace {

constexpr double kEpsilon = 1e-6;  // DeepSpec adds it to every denominator

LossScale deepspec_scale(const LossOptions& options, const BlockPlan& plan) {
  return {options.ce_alpha / (plan.ce_weight_sum + kEpsilon), options.l1_alpha / (plan.weight_sum + kEpsilon),
          options.confidence_alpha / (plan.weight_sum + kEpsilon)};
}

double combined(const LossOptions& options, const LossTerms& terms) {
  const auto mean = [](double sum, double weight) { return sum / (weight + kEpsilon); };
  return options.ce_alpha * mean(terms.ce_sum, terms.ce_weight) +
         options.l1_alpha * mean(terms.l1_sum, terms.l1_weight) +
         options.confidence_alpha * mean(terms.confidence_sum, terms.confidence_weight);
}

class DeepSpecTraining : public ::testing::TestWithParam<const char*> {};

TEST_P(DeepSpecTraining, LossTermsMetricsAndGradientsAreGolden) {
  const GoldenBatch golden(std::string("dspark/") + GetParam());
  const LossOptions options = golden.options();
  const auto rows = golden.all_rows();
  const FeatureBatch batch = golden.features(rows);
  const BlockPlan plan = golden.plan(options, batch, rows);
  const auto training = golden.training(options);
  const auto& train = golden.train;

  const LossTerms seen = training->loss(batch, plan, {}, /*backward=*/false);
  expect_relative(seen.ce_sum, train["term.ce_loss_num"].item<double>(), 1e-5, "ce sum");
  expect_relative(seen.ce_weight, train["term.ce_loss_den"].item<double>(), 1e-5, "ce weight");
  if (options.l1_alpha != 0) {  // the reference skips the term otherwise and stores zeros
    expect_relative(seen.l1_sum, train["term.l1_loss_num"].item<double>(), 1e-5, "l1 sum");
    expect_relative(seen.l1_weight, train["term.l1_loss_den"].item<double>(), 1e-5, "l1 weight");
  }
  if (training->config().confidence_head) {
    expect_relative(seen.confidence_sum, train["term.confidence_loss_num"].item<double>(), 1e-5, "confidence sum");
  }
  expect_relative(combined(options, seen), train["loss"].item<double>(), 1e-5, "loss");

  const auto metrics = test::golden_json(golden.folder + "/train.json")["metrics"];
  const auto metric = [&metrics](const std::string& name) { return metrics["train/" + name].get<double>(); };
  for (size_t k = 0; k < seen.accept_sum.size(); ++k) {
    expect_relative(seen.accept_sum[k] / static_cast<double>(seen.accept_count[k]),
                    metric("accept_rate@" + std::to_string(k)), 1e-5, "acceptance at " + std::to_string(k));
  }
  expect_relative(seen.tau_sum / static_cast<double>(seen.blocks), metric("tau_probabilistic"), 1e-5, "tau");
  if (training->config().confidence_head) {
    const double weight = seen.confidence_weight;
    expect_relative(seen.confidence_abs_error_sum / weight, metric("confidence_abs_error"), 1e-5, "abs error");
    expect_relative(seen.confidence_bias_sum / weight, metric("confidence_bias"), 1e-5, "bias");
    expect_relative(seen.confidence_survival_bias_sum / weight, metric("confidence_cumprod_bias"), 1e-5,
                    "survival bias");
  }

  const LossTerms trained = training->loss(batch, plan, deepspec_scale(options, plan));
  expect_relative(trained.ce_sum, seen.ce_sum, 1e-6, "the same loss with gradients");
  expect_gradients(*training, train, training->parameters().size());
}
INSTANTIATE_TEST_SUITE_P(Cases, DeepSpecTraining,
                         ::testing::Values("vanilla", "gated", "rnn", "confidence_plain", "dflash"));

TEST(DraftTraining, ForwardRowsAreGolden) {
  for (const char* name : {"vanilla", "gated", "rnn", "confidence_plain"}) {
    const GoldenBatch golden(std::string("dspark/") + name);
    const auto rows = golden.all_rows();
    const FeatureBatch features = golden.features(rows);
    const DraftConfig config = golden.config();
    const BlockPlan plan = golden.plan({}, features, rows);
    const BlockBatch blocks = block_batch(config, plan, host_tokens(features));
    DraftWeights weights;
    for (const auto& [parameter, shape] : parameter_shapes(config)) weights[parameter] = golden.model[parameter];
    const Backbone backbone(config, target::rope_table(config.layer.rope, config.layer.head_dim, 256));
    const BackboneWeights arranged = arrange(config, weights, at::kFloat);

    const at::Tensor context = backbone.context(arranged, features.tapped);
    EXPECT_TRUE(test::close(context, golden.train["context"].flatten(0, 1))) << name;
    const at::Tensor seen = context.index_select(0, blocks.context_rows);
    at::Tensor x = golden.model["embed_tokens.weight"].index_select(0, blocks.ids);
    const int64_t slots = config.block_size, width = config.layer.hidden_size;
    const auto per_block = [&](const at::Tensor& stored) {
      return golden.live_blocks(stored.view({stored.size(0), -1, slots, width})).view({-1, width});
    };
    for (int64_t i = 0; i < config.layers; ++i) {
      const auto& layer = arranged.layers[static_cast<size_t>(i)];
      const KeysValues keys = backbone.context_keys(layer, seen, backbone.rope().rows(blocks.context_positions));
      x = backbone.layer(layer, i, x, keys, blocks.layout, backbone.rope().rows(blocks.positions));
      EXPECT_TRUE(test::close(x, per_block(golden.train["layer_out." + std::to_string(i)]))) << name << " layer " << i;
    }
    const at::Tensor hidden = backbone.final_norm(arranged, x);
    EXPECT_TRUE(test::close(hidden, per_block(golden.train["draft_hidden"]))) << name;

    const MarkovWeights markov = arrange_markov(config, weights, at::kFloat);
    const at::Tensor e = weights.at("markov_head.markov_w1.weight").index_select(0, blocks.previous_ids);
    const at::Tensor logits = at::zeros({hidden.size(0), config.layer.vocab_size});
    nn::product_f32(logits, hidden, golden.model["lm_head.weight"]);
    nn::product_f32(logits, markov_blocks(markov, e, hidden, slots).contiguous(), markov.w2, /*accumulate=*/true);
    const at::Tensor live = golden.live_blocks(golden.train["eval_mask"]).flatten().to(at::kBool);
    const at::Tensor expected = golden.live_blocks(golden.train["draft_logits"]).flatten(0, 1);
    EXPECT_TRUE(test::close(logits.index({live}), expected.index({live}))) << name;
  }
}

// The reference's bf16 run with f32 frequencies. Its logits are rounded to bf16, ours are not.
TEST(DraftTraining, Bf16LogitsAreGolden) {
  for (const char* name : {"vanilla", "gated", "rnn", "confidence_plain"}) {
    const GoldenBatch golden(std::string("dspark/") + name);
    const auto rows = golden.all_rows();
    const FeatureBatch features = golden.features(rows, at::kBFloat16);
    const DraftConfig config = golden.config();
    const BlockBatch blocks = block_batch(config, golden.plan({}, features, rows), host_tokens(features));
    DraftWeights weights;
    for (const auto& [parameter, shape] : parameter_shapes(config)) weights[parameter] = golden.model[parameter];
    const Backbone backbone(config, target::rope_table(config.layer.rope, config.layer.head_dim, 256));
    const BackboneWeights arranged = arrange(config, weights, at::kBFloat16);
    const at::Tensor context = backbone.context(arranged, features.tapped.index_select(0, blocks.context_rows));
    at::Tensor x = golden.model["embed_tokens.weight"].to(at::kBFloat16).index_select(0, blocks.ids);
    for (int64_t i = 0; i < config.layers; ++i) {
      const auto& layer = arranged.layers[static_cast<size_t>(i)];
      const KeysValues keys = backbone.context_keys(layer, context, backbone.rope().rows(blocks.context_positions));
      x = backbone.layer(layer, i, x, keys, blocks.layout, backbone.rope().rows(blocks.positions));
    }
    const at::Tensor hidden = backbone.final_norm(arranged, x);
    const MarkovWeights markov = arrange_markov(config, weights, at::kBFloat16);
    const at::Tensor e =
        weights.at("markov_head.markov_w1.weight").to(at::kBFloat16).index_select(0, blocks.previous_ids);
    const at::Tensor logits = at::zeros({hidden.size(0), config.layer.vocab_size});
    nn::product_f32(logits, hidden, golden.model["lm_head.weight"].to(at::kBFloat16));
    nn::product_f32(logits, markov_blocks(markov, e, hidden, config.block_size).contiguous(), markov.w2, true);
    const at::Tensor live = golden.live_blocks(golden.train["eval_mask"]).flatten().to(at::kBool);
    const at::Tensor expected = golden.live_blocks(golden.train["bf16.draft_logits"]).flatten(0, 1);
    EXPECT_TRUE(test::close_l2(logits.index({live}), expected.index({live}), 1e-2)) << name;
  }
}

TEST(DraftTraining, TwoRanksAddUpToOneProcess) {
  const GoldenBatch golden("dspark/vanilla");
  const test::GoldenTensors ranks("dspark/vanilla/train_two_ranks.safetensors");
  const LossOptions options = golden.options();
  const auto all = golden.all_rows();
  const BlockPlan whole = golden.plan(options, golden.features(all), all);
  const LossScale scale = deepspec_scale(options, whole);  // of both ranks together
  const auto together = golden.training(options);
  for (const int64_t rank : all) {
    const std::string prefix = "rank" + std::to_string(rank) + ".";
    const FeatureBatch batch = golden.features({rank});
    const BlockPlan plan = golden.plan(options, batch, {rank});
    const auto alone = golden.training(options);
    const LossTerms terms = alone->loss(batch, plan, scale);
    expect_relative(terms.ce_sum, ranks[prefix + "term.ce_loss_num"].item<double>(), 1e-5, prefix + "ce");
    expect_relative(terms.l1_sum, ranks[prefix + "term.l1_loss_num"].item<double>(), 1e-5, prefix + "l1");
    expect_relative(terms.confidence_sum, ranks[prefix + "term.confidence_loss_num"].item<double>(), 1e-5, prefix);
    expect_relative(terms.l1_weight, ranks[prefix + "term.l1_loss_den"].item<double>(), 1e-5, prefix + "weight");
    size_t compared = 0;
    for (const auto& [name, master] : alone->parameters()) {
      if (!ranks.has(prefix + "grad." + name)) continue;
      ++compared;  // the reference averages over ranks and multiplies its loss by their number
      EXPECT_TRUE(test::close_l2(master.grad() * 2.0, ranks[prefix + "grad." + name], 1e-4)) << prefix << name;
    }
    EXPECT_EQ(compared, 3u);
    together->loss(batch, plan, scale);  // gradients add over calls as over ranks
  }
  expect_gradients(*together, golden.train, together->parameters().size());
}

TEST(DraftTraining, DeadRowsAndOtherSequencesChangeNothing) {
  const GoldenBatch golden("dspark/rnn");
  const LossOptions options = golden.options();
  const FeatureBatch alone = golden.features({1});
  const BlockPlan plan = golden.plan(options, alone, {1});
  const LossScale scale = deepspec_scale(options, plan);
  const auto reference = golden.training(options);
  const LossTerms expected = reference->loss(alone, plan, scale);

  // The same blocks beside a sequence without blocks, with noise wherever no block looks.
  FeatureBatch noisy = golden.features({0, 1});
  BlockPlan shifted = golden.plan(options, noisy, {0, 1});
  const int64_t first = noisy.starts[1], last_anchor = plan.anchor.back();
  noisy.tapped.slice(0, 0, first).normal_();
  noisy.tapped.slice(0, first + last_anchor).normal_();
  const auto begin = static_cast<std::ptrdiff_t>(std::count(shifted.sequence.begin(), shifted.sequence.end(), 0));
  const auto cut = [&](auto& list, int64_t per_block) { list.erase(list.begin(), list.begin() + begin * per_block); };
  cut(shifted.sequence, 1), cut(shifted.anchor, 1), cut(shifted.sample_id, 1);
  cut(shifted.label_row, plan.block_size), cut(shifted.teacher_row, plan.block_size);
  cut(shifted.previous_row, plan.block_size), cut(shifted.weight, plan.block_size);
  shifted.weight_sum = plan.weight_sum, shifted.ce_weight_sum = plan.ce_weight_sum;
  const auto training = golden.training(options);
  const LossTerms terms = training->loss(noisy, shifted, scale);
  EXPECT_NEAR(terms.ce_sum, expected.ce_sum, 1e-5 * expected.ce_sum);
  EXPECT_NEAR(terms.l1_sum, expected.l1_sum, 1e-5 * expected.l1_sum);
  for (const auto& [name, master] : training->parameters()) {
    EXPECT_TRUE(test::close_l2(master.grad(), reference->parameters().at(name).grad(), 1e-5)) << name;
  }
}

TEST(DraftTraining, SequencesWithoutBlocksGiveZerosAndNoGradient) {
  const GoldenBatch golden("dspark/vanilla");
  FeatureBatch batch = golden.features({0});
  batch.supervised.zero_();
  const auto training = golden.training({});
  const BlockPlan plan = training->plan(batch, 6, {1, 2});
  EXPECT_EQ(plan.blocks(), 0);
  const LossTerms terms = training->loss(batch, plan, {1, 1, 1});
  EXPECT_EQ(terms.ce_sum, 0.0);
  EXPECT_EQ(terms.blocks, 0);
  for (const auto& [name, master] : training->parameters()) EXPECT_FALSE(master.grad().defined()) << name;
}

// A head that reads states of any size must not drown the other terms, nor push the layers below it.
TEST(DraftTraining, Report46LargeStatesLeaveTheConfidenceTermSmall) {
  const GoldenBatch golden("dspark/vanilla");
  const LossOptions options = golden.options();
  const auto rows = golden.all_rows();
  const auto gradients = [&](double factor, LossTerms& terms) {
    FeatureBatch batch = golden.features(rows);
    batch.tapped = batch.tapped * factor;
    const BlockPlan plan = golden.plan(options, batch, rows);
    const auto training = golden.training(options);
    terms = training->loss(batch, plan, deepspec_scale(options, plan));
    double squares = 0;
    for (const auto& [name, master] : training->parameters()) {
      if (name.find("layers.") != std::string::npos) squares += master.grad().square().sum().item<double>();
    }
    return std::sqrt(squares);
  };
  LossTerms usual, large;
  const double below = gradients(1, usual), now = gradients(100, large);
  ASSERT_GT(usual.confidence_sum, 0);
  EXPECT_LT(large.confidence_sum / large.confidence_weight, 2 * usual.confidence_sum / usual.confidence_weight);
  EXPECT_LT(now, 2 * below);
}

// ||a - b|| / ||b|| of whole-batch f32 and bf16 gradients: bf16 keeps eight bits, and so should the result.
TEST(DraftTraining, Bf16FollowsF32) {
  const GoldenBatch golden("dspark/vanilla");
  const LossOptions options = golden.options();
  const auto rows = golden.all_rows();
  const BlockPlan plan = golden.plan(options, golden.features(rows), rows);
  const LossScale scale = deepspec_scale(options, plan);
  const auto wide = golden.training(options), narrow = golden.training(options, at::kBFloat16);
  const LossTerms a = wide->loss(golden.features(rows), plan, scale);
  const LossTerms b = narrow->loss(golden.features(rows, at::kBFloat16), plan, scale);
  EXPECT_NEAR(b.ce_sum, a.ce_sum, 5e-3 * a.ce_sum);
  EXPECT_NEAR(b.l1_sum, a.l1_sum, 5e-3 * a.l1_sum);
  for (const auto& [name, master] : narrow->parameters()) {
    EXPECT_TRUE(test::close_l2(master.grad(), wide->parameters().at(name).grad(), 4e-2)) << name;
  }
}

TEST(DraftTraining, ASavedDraftIsReadBackTheSame) {
  const GoldenBatch golden("dspark/gated");
  const test::TemporaryFolder folder;
  const auto training = golden.training({});
  training->save(folder.path() / "a", at::kFloat, /*with_frozen=*/true);
  device::Runtime runtime = device::Runtime::open("cpu");
  const auto again = DraftTraining::load(folder.path() / "a", {}, golden.target(), at::kFloat, runtime);
  for (const auto& [name, master] : training->parameters()) {
    EXPECT_TRUE(test::same_bits(master, again->parameters().at(name))) << name;
  }
  const auto file = formats::SafetensorsFile::open(folder.path() / "a" / "model.safetensors");
  EXPECT_EQ(file->names(), formats::SafetensorsFile::open(test::golden("dspark/gated/model.safetensors"))->names());

  training->save(folder.path() / "b", at::kBFloat16, false);
  EXPECT_FALSE(formats::SafetensorsFile::open(folder.path() / "b" / "model.safetensors")->has("lm_head.weight"));
  const auto narrow = DraftTraining::load(folder.path() / "b", {}, golden.target(), at::kFloat, runtime);
  for (const auto& [name, master] : training->parameters()) {
    EXPECT_TRUE(test::close(narrow->parameters().at(name), master, 0.0, 0.0040)) << name;
  }
}

TEST(DraftTraining, ANewDraftDependsOnItsSeedOnly) {
  const GoldenBatch golden("dspark/vanilla");
  device::Runtime runtime = device::Runtime::open("cpu");
  const auto make = [&](uint64_t seed) {
    return DraftTraining::create(golden.config(), {}, golden.target(), seed, at::kFloat, runtime);
  };
  const auto a = make(1), b = make(1), c = make(2);
  const std::string fc = "fc.weight";
  EXPECT_TRUE(test::same_bits(a->parameters().at(fc), b->parameters().at(fc)));
  EXPECT_FALSE(test::same_bits(a->parameters().at(fc), c->parameters().at(fc)));
  EXPECT_NEAR(a->parameters().at(fc).detach().std().item<double>(), 0.02, 0.001);
  EXPECT_EQ(a->parameters().at("norm.weight").detach().min().item<float>(), 1.0f);
}

TEST(DraftTrainingErrors, NameTheTensor) {
  const GoldenBatch golden("dspark/gated");
  const test::TemporaryFolder folder;
  golden.training({})->save(folder.path(), at::kFloat, true);
  const auto other = std::make_shared<TablesTarget>(at::randn({97, 32}), at::randn({97, 32}), 7);
  device::Runtime runtime = device::Runtime::open("cpu");
  try {
    DraftTraining::load(folder.path(), {}, other, at::kFloat, runtime);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    EXPECT_NE(std::string(error.what()).find("embed_tokens.weight differs from the target's"), std::string::npos);
  }
  EXPECT_THROW(DraftTraining::load(folder.path(), {.decay_kind = "dspace"}, golden.target(), at::kFloat, runtime),
               Error);
}

}  // namespace
}  // namespace pacer::draft
