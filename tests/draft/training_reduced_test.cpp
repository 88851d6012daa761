// The reduced draft vocabulary against values computed in f64 from its definition.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>

#include "pacer/draft/block_batch.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/draft/training_loss.h"
#include "pacer/nn/vocab_loss.h"
#include "tests/draft/golden_batch.h"

namespace pacer::draft {
namespace {

// dspark/vanilla with the 40 kept ids, as a folder that read_draft reads.
class Reduced {
 public:
  Reduced() : golden("dspark/vanilla"), expected("dspark_reduced/train.safetensors") {
    DraftFolder draft{golden.config(), {}};
    draft.config.kept_ids = to_ids(expected["kept_ids"]);
    for (const auto& [name, shape] : parameter_shapes(draft.config)) draft.weights[name] = golden.model[name];
    at::Tensor& w2 = draft.weights.at("markov_head.markov_w2.weight");
    w2 = w2.index_select(0, expected["kept_ids"]);
    write_draft(folder.path(), draft, at::kFloat, golden.target().get());
  }
  std::unique_ptr<DraftTraining> training(const LossOptions& options) const {
    device::Runtime runtime = device::Runtime::open("cpu");
    return DraftTraining::load(folder.path(), options, golden.target(), at::kFloat, runtime);
  }
  GoldenBatch golden;
  test::GoldenTensors expected;
  test::TemporaryFolder folder;
};

TEST(ReducedVocabulary, TheFolderHoldsOffsetsAndComesBack) {
  const Reduced reduced;
  const auto file = formats::SafetensorsFile::open(reduced.folder.path() / "model.safetensors");
  EXPECT_TRUE(test::same_bits(test::to_tensor(file->tensor("d2t")), reduced.expected["d2t_offsets"]));
  EXPECT_EQ(file->tensor("lm_head.weight").shape.front(), reduced.expected["kept_ids"].numel());
  const DraftFolder draft = read_draft(reduced.folder.path(), at::kFloat, *reduced.golden.target());
  EXPECT_EQ(draft.config.kept_ids, to_ids(reduced.expected["kept_ids"]));
}

TEST(ReducedVocabulary, LossTermsAndGradientsAreGolden) {
  const Reduced reduced;
  const LossOptions options = reduced.golden.options();
  const auto training = reduced.training(options);
  const auto rows = reduced.golden.all_rows();
  const FeatureBatch batch = reduced.golden.features(rows);
  std::vector<int64_t> mask = to_ids(batch.supervised), ids = to_ids(batch.ids);
  const std::vector<uint8_t> supervised(mask.begin(), mask.end());
  const BlockPlan plan = plan_blocks(training->config(), options, {ids, supervised, batch.starts, batch.sample_ids},
                                     reduced.golden.anchors(rows));
  const auto value = [&](const char* name) { return reduced.expected[name].item<double>(); };
  EXPECT_NEAR(plan.ce_weight_sum, value("term.ce_den"), 1e-5);
  EXPECT_NEAR(plan.weight_sum, value("term.l1_den"), 1e-5);
  const LossScale scale{options.ce_alpha / (plan.ce_weight_sum + 1e-6), options.l1_alpha / (plan.weight_sum + 1e-6),
                        options.confidence_alpha / (plan.weight_sum + 1e-6)};
  const LossTerms terms = training->loss(batch, plan, scale);
  expect_relative(terms.ce_sum, value("term.ce_num"), 1e-5, "ce");
  expect_relative(terms.l1_sum, value("term.l1_num"), 1e-5, "l1");
  expect_relative(terms.confidence_sum, value("term.confidence_num"), 1e-5, "confidence");
  const at::Tensor live = reduced.golden.live_blocks(reduced.golden.train["eval_mask"]).to(at::kLong);
  EXPECT_EQ(terms.label_total, live.sum().item<int64_t>());
  EXPECT_EQ(terms.label_kept,
            (live * reduced.golden.live_blocks(reduced.expected["label_kept"]).to(at::kLong)).sum().item<int64_t>());
  // The golden gradients are of a graph that begins at the hidden rows, which are the same here.
  expect_gradients(*training, reduced.expected, 4);
}

TEST(ReducedVocabulary, KeptLogSumsOfTheTargetGiveTheSameStep) {
  const Reduced reduced;
  const LossOptions options = reduced.golden.options();
  const auto fresh = reduced.training(options), kept = reduced.training(options);
  FeatureBatch batch = reduced.golden.features(reduced.golden.all_rows());
  const BlockPlan plan = fresh->plan(batch, 6, {1, 1});
  const LossScale scale{0.1, 0.2, 0.3};
  const LossTerms a = fresh->loss(batch, plan, scale);
  batch.log_sum = kept->teacher_log_sums(batch.last);
  ASSERT_TRUE(batch.log_sum.defined());
  const LossTerms b = kept->loss(batch, plan, scale);
  expect_relative(b.l1_sum, a.l1_sum, 1e-6, "l1");
  for (const auto& [name, master] : fresh->parameters()) {
    EXPECT_TRUE(test::close_l2(kept->parameters().at(name).grad(), master.grad(), 1e-5)) << name;
  }
  EXPECT_FALSE(reduced.golden.training(options)->teacher_log_sums(batch.last).defined());  // full vocabulary
}

TEST(ReducedVocabulary, RowLossesAndHiddenGradientsAreGolden) {
  const Reduced reduced;
  const LossOptions options = reduced.golden.options();
  const auto& train = reduced.golden.train;
  const auto& model = reduced.golden.model;
  const auto rows = reduced.golden.all_rows();
  const FeatureBatch batch = reduced.golden.features(rows);
  const BlockPlan plan = reduced.golden.plan(options, batch, rows);
  DraftConfig config = reduced.golden.config();
  config.kept_ids = to_ids(reduced.expected["kept_ids"]);
  const LiveSlots live = live_slots(config, plan, batch.ids.const_data_ptr<int64_t>());
  const at::Tensor at = index_tensor(live.slot);
  const auto per_slot = [&](const at::Tensor& stored) {  // [B, N, K, ...] -> [live slots, ...]
    return reduced.golden.live_blocks(stored).flatten(0, 1).index_select(0, at);
  };
  const at::Tensor hidden_all = train["draft_hidden"];
  nn::VocabLossInput input;
  input.hidden = per_slot(hidden_all.view(reduced.expected["grad.draft_hidden"].sizes())).contiguous();
  input.head = model["lm_head.weight"].index_select(0, reduced.expected["kept_ids"]);
  const at::Tensor w1 = model["markov_head.markov_w1.weight"];
  input.markov = w1.index_select(0, per_slot(reduced.expected["previous_ids"])).contiguous();
  input.markov_out = model["markov_head.markov_w2.weight"].index_select(0, reduced.expected["kept_ids"]);
  input.teacher = batch.last, input.teacher_head = model["lm_head.weight"];
  input.teacher_row = live.teacher_row, input.kept_ids = config.kept_ids, input.label = live.label;
  double kept_weight = 0, weight_sum = 0;
  for (size_t i = 0; i < live.slot.size(); ++i) {
    weight_sum += static_cast<double>(live.weight[i]);
    if (live.label[i] >= 0) kept_weight += static_cast<double>(live.weight[i]);
  }
  for (const float weight : live.weight) {
    input.ce_scale.push_back(static_cast<float>(options.ce_alpha / (kept_weight + 1e-6)) * weight);
    input.l1_scale.push_back(static_cast<float>(options.l1_alpha / (weight_sum + 1e-6)) * weight);
  }
  nn::VocabLoss loss(1 << 20);
  const nn::VocabLossOutput out = loss(input);
  const at::Tensor ce = per_slot(reduced.expected["ce_per_token"]), l1 = per_slot(reduced.expected["l1"]);
  const at::Tensor accepted = per_slot(reduced.expected["accept_rate"]);
  for (size_t i = 0; i < live.slot.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    EXPECT_NEAR(out.ce[i], ce[row].item<double>(), 1e-4);
    EXPECT_NEAR(out.l1[i], l1[row].item<double>(), 1e-5);
    EXPECT_NEAR(acceptance(out.l1[i]), accepted[row].item<double>(), 1e-5);
  }
  // Add what flows into the hidden rows through the confidence head; the golden gradient is of the whole loss.
  const at::Tensor w = model["confidence_head.proj.weight"], features = at::cat({input.hidden, input.markov}, 1);
  const at::Tensor logit = (features * w).sum(1) + model["confidence_head.proj.bias"];
  const at::Tensor slope = (at::sigmoid(logit) - accepted) * per_slot(train["loss_weight"]) *
                           (options.confidence_alpha / (weight_sum + 1e-6));
  const at::Tensor d_hidden = out.d_hidden + slope.unsqueeze(1) * w.slice(1, 0, input.hidden.size(1));
  EXPECT_TRUE(test::close_l2(d_hidden, per_slot(reduced.expected["grad.draft_hidden"]), 1e-4));
}

TEST(ReducedVocabulary, ProposalsAreTargetIdsAndLawsCoverTheTargetsVocabulary) {
  const Reduced reduced;
  const DraftFolder draft = read_draft(reduced.folder.path(), at::kFloat, *reduced.golden.target());
  const auto proposer = make_block_proposer(draft, reduced.golden.target());
  const FeatureBatch batch = reduced.golden.features({0});
  proposer->start(to_ids(batch.ids), batch.tapped);
  int64_t next = 0;
  const Proposal proposal = proposer->propose(5, 5, false, [&](const at::Tensor& logits, at::Tensor* law) {
    EXPECT_EQ(logits.numel(), draft.config.draft_vocab());
    *law = logits.softmax(0);
    return 7 + next++;
  });
  ASSERT_EQ(proposal.probabilities.sizes(), (std::vector<int64_t>{5, draft.config.layer.vocab_size}));
  EXPECT_TRUE(test::close(proposal.probabilities.sum(1), at::zeros({5}) + 1.0, 1e-5, 0));
  const at::Tensor outside = reduced.expected["t2d"].eq(0);
  EXPECT_EQ(proposal.probabilities.masked_select(outside).abs().max().item<float>(), 0.0f);
  for (size_t i = 0; i < proposal.tokens.size(); ++i) EXPECT_EQ(proposal.tokens[i], draft.config.kept_ids[7 + i]);
}

}  // namespace
}  // namespace pacer::draft
