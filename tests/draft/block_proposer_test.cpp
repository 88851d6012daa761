#include "pacer/draft/block_proposer.h"

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::draft {
namespace {

std::shared_ptr<const target::Target> golden_target() {
  static const std::shared_ptr<const target::Target> target = [] {
    device::Runtime runtime = device::Runtime::open("cpu");
    return target::Target::load(test::golden("dspark/target"), at::kFloat, runtime);
  }();
  return target;
}

int64_t greedy(const at::Tensor& logits, at::Tensor*) { return logits.argmax().item<int64_t>(); }

// Replays the rounds of a golden greedy trace: given the committed text, every proposal must be the recorded one.
void replay(const std::string& folder, const std::string& file, const ProposerOptions& options) {
  const auto target = golden_target();
  const std::unique_ptr<Proposer> proposer = load_block_proposer(test::golden(folder), target, options);
  const target::Taps taps = proposer->taps();
  for (const auto& trace : test::golden_json(folder + "/" + file)) {
    const auto prompt = trace["prompt_ids"].get<std::vector<int64_t>>();
    const auto cache = target->new_cache();
    proposer->start(prompt, target->forward(target::TokenBatch::single(prompt), taps, {cache.get()}).tapped);
    for (const auto& round : trace["rounds"]) {
      const auto verified = round["verify_input_ids"].get<std::vector<int64_t>>();
      const Proposal proposal = proposer->propose(verified[0], proposer->max_tokens(), true, greedy);
      ASSERT_EQ(proposal.tokens, std::vector<int64_t>(verified.begin() + 1, verified.end())) << folder;
      const auto committed = static_cast<int64_t>(round["accepted"]) + 1;
      const std::vector<int64_t> tokens(verified.begin(), verified.begin() + committed);
      proposer->advance(
          tokens, target->forward(target::TokenBatch::single(tokens, cache->length()), taps, {cache.get()}).tapped);
    }
  }
}

TEST(BlockProposer, RepeatsTheGoldenGreedyProposals) {
  for (const char* folder : {"dspark/vanilla_fitted", "dspark/rnn_fitted", "dspark/dflash_fitted"}) {
    replay(folder, "decode.json", {});
  }
}

TEST(BlockProposer, CutsWhereTheGoldenConfidenceFallsBelowTheThreshold) {
  const auto trace = test::golden_json("dspark/vanilla_fitted/decode_threshold.json");
  replay("dspark/vanilla_fitted", "decode_threshold.json",
         {.confidence_threshold = trace[0]["confidence_threshold"].get<double>()});
}

TEST(BlockProposer, RepeatsTheGoldenBlocksOfTheAnchorSlotLayout) {
  const auto target = golden_target();
  const auto proposer = load_block_proposer(test::golden("specforge_dflash/dflash_fitted"), target);
  const target::Taps taps = proposer->taps();
  for (const auto& trace : test::golden_json("specforge_dflash/dflash_fitted/decode.json")) {
    const auto prompt = trace["prompt_ids"].get<std::vector<int64_t>>();
    const auto output = trace["output_ids"].get<std::vector<int64_t>>();
    const auto cache = target->new_cache();
    proposer->start(prompt, target->forward(target::TokenBatch::single(prompt), taps, {cache.get()}).tapped);
    auto position = static_cast<int64_t>(prompt.size());
    for (const auto& block : trace["blocks_verified"]) {
      const auto verified = block.get<std::vector<int64_t>>();
      const Proposal proposal = proposer->propose(verified[0], proposer->max_tokens(), true, greedy);
      ASSERT_EQ(proposal.tokens, std::vector<int64_t>(verified.begin() + 1, verified.end()));
      int64_t committed = 1;  // the text tells how many were right
      while (committed < static_cast<int64_t>(verified.size()) &&
             position + committed < static_cast<int64_t>(output.size()) &&
             verified[static_cast<size_t>(committed)] == output[static_cast<size_t>(position + committed)]) {
        ++committed;
      }
      const std::vector<int64_t> tokens(verified.begin(), verified.begin() + committed);
      proposer->advance(tokens,
                        target->forward(target::TokenBatch::single(tokens, position), taps, {cache.get()}).tapped);
      position += committed;
    }
  }
}

TEST(BlockProposer, LawsAndConfidenceAreTheGoldenOnes) {
  const auto target = golden_target();
  for (const char* folder : {"dspark/vanilla_fitted", "dspark/rnn_fitted"}) {
    const auto trace = test::golden_json(std::string(folder) + "/decode_sampling.json")[0];
    const test::GoldenTensors golden(std::string(folder) + "/decode_sampling.safetensors");
    const auto proposer = load_block_proposer(test::golden(folder), target);
    const auto prompt = trace["prompt_ids"].get<std::vector<int64_t>>();
    const auto verified = trace["rounds"][0]["verify_input_ids"].get<std::vector<int64_t>>();
    const double temperature = trace["temperature"];
    proposer->start(prompt, target->forward(target::TokenBatch::single(prompt), proposer->taps()).tapped);
    size_t slot = 0;
    const Proposal proposal =
        proposer->propose(verified[0], proposer->max_tokens(), false, [&](const at::Tensor& logits, at::Tensor* law) {
          *law = at::softmax(logits / temperature, 0);
          return verified[++slot];
        });
    std::string prefix;
    for (const std::string& name : golden.names()) {
      if (name.ends_with("draft_probs")) {
        prefix = name.substr(0, name.size() - std::string("draft_probs").size());
        break;
      }
    }
    EXPECT_TRUE(test::close(proposal.probabilities, golden[prefix + "draft_probs"][0])) << folder;
    ASSERT_EQ(proposal.confidence.size(), proposal.tokens.size());
    const at::Tensor confidence = golden[prefix + "confidence_logits"][0];
    for (size_t i = 0; i < proposal.confidence.size(); ++i) {
      EXPECT_NEAR(proposal.confidence[i], confidence[static_cast<int64_t>(i)].item<double>(), 1e-4) << folder;
    }
  }
}

TEST(BlockProposer, AContextGrownInPiecesEqualsOneMadeAtOnce) {
  const auto target = golden_target();
  const auto trace = test::golden_json("dspark/vanilla_fitted/decode.json")[0];
  const auto text = trace["output_ids"].get<std::vector<int64_t>>();
  const auto whole = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  const auto pieces = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  const at::Tensor tapped = target->forward(target::TokenBatch::single(text), whole->taps()).tapped;
  whole->start(text, tapped);
  const auto slice = [&](int64_t begin, int64_t end) {
    return std::vector<int64_t>(text.begin() + begin, text.begin() + end);
  };
  pieces->start(slice(0, 7), tapped.slice(0, 0, 7));
  for (int64_t begin = 7, step = 1; begin < static_cast<int64_t>(text.size()); begin += step, step = step % 4 + 1) {
    const int64_t end = std::min(begin + step, static_cast<int64_t>(text.size()));
    pieces->advance(slice(begin, end), tapped.slice(0, begin, end));
  }
  const DrawToken first = [](const at::Tensor& logits, at::Tensor* law) {
    *law = logits.clone();
    return int64_t{3};
  };
  const Proposal a = whole->propose(9, 5, false, first), b = pieces->propose(9, 5, false, first);
  EXPECT_TRUE(test::close(a.probabilities, b.probabilities, 1e-5, 1e-5));
}

TEST(BlockProposer, CatchesUpOnlyWhenItIsAskedAndToTheSameBits) {
  const auto target = golden_target();
  const auto trace = test::golden_json("dspark/vanilla_fitted/decode.json")[0];
  const auto text = trace["output_ids"].get<std::vector<int64_t>>();
  const auto lazy = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  const auto eager = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  const at::Tensor tapped = target->forward(target::TokenBatch::single(text), lazy->taps()).tapped;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto begin = static_cast<int64_t>(i);
    const at::Tensor row = tapped.slice(0, begin, begin + 1);
    for (Proposer* proposer : {lazy.get(), eager.get()}) {
      if (i == 0) {
        proposer->start({text[i]}, row);
      } else {
        proposer->advance({text[i]}, row);
      }
    }
    eager->catch_up();
    EXPECT_EQ(eager->behind(), 0);
    EXPECT_EQ(lazy->behind(), begin + 1);
  }
  const DrawToken first = [](const at::Tensor& logits, at::Tensor* law) {
    *law = logits.clone();
    return int64_t{3};
  };
  const Proposal a = lazy->propose(9, 5, false, first), b = eager->propose(9, 5, false, first);
  EXPECT_TRUE(test::same_bits(a.probabilities, b.probabilities));
  EXPECT_EQ(lazy->behind(), 0);
  lazy->start({1}, tapped.slice(0, 0, 1));
  EXPECT_EQ(lazy->behind(), 1) << "a new text forgets what was put off";
}

TEST(BlockProposer, Bf16FollowsF32) {
  device::Runtime runtime = device::Runtime::open("cpu");
  const std::shared_ptr<const target::Target> narrow =
      target::Target::load(test::golden("dspark/target"), at::kBFloat16, runtime);
  const auto wide = golden_target();
  const std::vector<int64_t> prompt{33, 35, 24, 76, 53, 71, 9, 77};
  const at::Tensor tapped = wide->forward(target::TokenBatch::single(prompt), {0, 2, 5}).tapped;
  for (const char* folder : {"dspark/vanilla_fitted", "dspark/rnn_fitted", "dspark/dflash_fitted"}) {
    at::Tensor logits[2];
    for (const int which : {0, 1}) {
      const auto proposer = load_block_proposer(test::golden(folder), which == 0 ? wide : narrow);
      proposer->start(prompt, which == 0 ? tapped : tapped.to(at::kBFloat16));
      logits[which] = proposer
                          ->propose(9, 5, false,
                                    [](const at::Tensor& row, at::Tensor* law) {
                                      *law = row.clone();
                                      return int64_t{77};
                                    })
                          .probabilities;
    }
    EXPECT_TRUE(test::close_l2(logits[1], logits[0], 3e-2)) << folder;
  }
}

TEST(BlockProposer, ProposesAtMostTheLimit) {
  const auto target = golden_target();
  const auto proposer = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  proposer->start({1, 2, 3}, target->forward(target::TokenBatch::single({1, 2, 3}), proposer->taps()).tapped);
  const Proposal all = proposer->propose(4, 100, true, greedy);
  EXPECT_EQ(static_cast<int64_t>(all.tokens.size()), proposer->max_tokens());
  const Proposal two = proposer->propose(4, 2, true, greedy);
  EXPECT_EQ(two.tokens, std::vector<int64_t>(all.tokens.begin(), all.tokens.begin() + 2));
  EXPECT_TRUE(proposer->propose(4, 0, true, greedy).tokens.empty());
}

// Greedy proposals leave out what cannot lead. A leader that the decoder refuses, as it does with rows that pad a
// vocabulary, must not hide the likeliest of the others.
TEST(BlockProposer, ARefusedLeaderDoesNotHideTheOthers) {
  const auto target = golden_target();
  const auto proposer = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  const int64_t tokens = target->config().vocab_size / 3;
  int refused = 0;
  const DrawToken draw = [&](const at::Tensor& logits, at::Tensor* law) {
    if (law != nullptr) *law = at::softmax(logits, 0);
    refused += logits.argmax().item<int64_t>() >= tokens;
    return logits.slice(0, 0, tokens).argmax().item<int64_t>();
  };
  for (int64_t start = 0; start < 20; ++start) {
    const std::vector<int64_t> prompt = {start, start + 1, start + 2};
    proposer->start(prompt, target->forward(target::TokenBatch::single(prompt), proposer->taps()).tapped);
    const std::vector<int64_t> whole = proposer->propose(4, 100, false, draw).tokens;
    refused = 0;
    EXPECT_EQ(proposer->propose(4, 100, true, draw).tokens, whole) << start;
  }
  EXPECT_GT(refused, 0);
}

TEST(BlockProposerErrors, SayWhatIsWrong) {
  const auto target = golden_target();
  EXPECT_THROW(load_block_proposer(test::golden("dspark/dflash_fitted"), target, {.confidence_threshold = 0.5}), Error);
  const auto proposer = load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  EXPECT_THROW(proposer->start({1, 2}, {}), Error);
}

// Report 102: a draft whose positions end before the text does.
TEST(BlockProposer, Report102BeyondItsPositionsItProposesNothing) {
  const auto target = golden_target();
  DraftFolder draft = read_draft(test::golden("dspark/vanilla_fitted"), at::kFloat, *target);
  draft.config.layer.max_position = 32;
  const int64_t last = 32 - draft.config.block_size;  // committed tokens with room for a block behind them
  const auto proposer = make_block_proposer(draft, target, {});
  for (const int64_t length : {last - 1, last, last + 1, int64_t{32}, int64_t{40}}) {
    std::vector<int64_t> prompt;
    for (int64_t i = 0; i < length; ++i) prompt.push_back(i % 20);
    const auto cache = target->new_cache();
    const auto features = target->forward(target::TokenBatch::single(prompt), proposer->taps(), {cache.get()}).tapped;
    proposer->start(prompt, features);
    const Proposal proposal = proposer->propose(1, 4, true, greedy);
    EXPECT_EQ(proposal.tokens.empty(), length > last) << length;
    EXPECT_EQ(proposer->max_tokens() == 0, length > last) << length;
    proposer->advance({1}, features.slice(0, 0, 1));
    EXPECT_EQ(proposer->max_tokens() == 0, length + 1 > last) << length;
    EXPECT_EQ(proposer->propose(1, 4, true, greedy).tokens.empty(), length + 1 > last) << length;
  }
}

}  // namespace
}  // namespace pacer::draft
