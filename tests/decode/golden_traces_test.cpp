// Whole decoding runs of a real target with real drafts, round by round.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "pacer/decode/loop.h"
#include "pacer/device/runtime.h"
#include "pacer/draft/block_proposer.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

std::shared_ptr<const target::Target> golden_target() {
  static const std::shared_ptr<const target::Target> target = [] {
    auto runtime = device::Runtime::open("cpu");
    return target::Target::load(test::golden("dspark/target"), at::kFloat, runtime);
  }();
  return target;
}

// Gives the draws of a trace in their order and checks that each is used for what it was recorded for.
class Replay : public UniformSource {
 public:
  explicit Replay(const nlohmann::json& draws) : draws_(draws) {}
  double uniform(int64_t, int64_t, Draw draw) override {
    if (next_ >= draws_.size()) {
      ADD_FAILURE() << "more draws than the trace has";
      return 0.0;
    }
    const nlohmann::json& recorded = draws_[next_++];
    EXPECT_EQ(recorded[0].get<std::string>(), draw == Draw::accept ? "accept" : "sample") << next_ - 1;
    return recorded[1].get<double>();
  }
  bool finished() const { return next_ == draws_.size(); }

 private:
  const nlohmann::json& draws_;
  size_t next_ = 0;
};

DecodeOptions options_of(const nlohmann::json& trace) {
  DecodeOptions options;
  options.sampling.temperature = trace.value("temperature", 0.0);
  options.sampling.max_new_tokens = trace["max_new_tokens"].get<int64_t>();
  if (trace.contains("stop_token_ids") && !trace["stop_token_ids"].is_null()) {
    options.sampling.stop_ids = trace["stop_token_ids"].get<std::vector<int64_t>>();
  }
  options.confidence_threshold = trace.value("confidence_threshold", 0.0);
  return options;
}

std::vector<int64_t> ids(const nlohmann::json& list) { return list.get<std::vector<int64_t>>(); }

std::vector<int64_t> expected_text(const nlohmann::json& trace) {
  const std::vector<int64_t> all = ids(trace["output_ids"]);
  return {all.begin() + static_cast<std::ptrdiff_t>(trace["prompt_ids"].size()), all.end()};
}

// The recorded loop proposes a whole block also when the limit is near and cuts its text afterwards, so the rounds are
// compared in a run with room for that.
void expect_rounds(const nlohmann::json& trace, draft::Proposer& proposer, DecodeOptions options) {
  options.sampling.max_new_tokens += proposer.max_tokens() + 1;
  SpeculativeDecoder decoder(*golden_target(), proposer, ids(trace["prompt_ids"]), options);
  for (const nlohmann::json& expected : trace["rounds"]) {
    ASSERT_FALSE(decoder.done());
    decoder.round();
    const RoundRecord& round = decoder.result().rounds.back();
    EXPECT_EQ(round.start, expected["start"].get<int64_t>());
    EXPECT_EQ(round.verified, ids(expected["verify_input_ids"]));
    EXPECT_EQ(round.accepted, expected["accepted"].get<int64_t>());
    EXPECT_EQ(round.proposed, expected["effective_proposal_length"].get<int64_t>());
    EXPECT_EQ(round.stopped, expected["terminated_by_stop_token"].get<bool>());
    // The record holds a token behind an accepted stop token, too; no text ever has it.
    EXPECT_EQ(round.next_token, round.stopped ? -1 : expected["next_token"].get<int64_t>());
  }
  const AcceptanceCounts counts = decoder.result().counts();
  EXPECT_EQ(counts.rounds, trace["verify_count"].get<int64_t>());
  int64_t kept = 0;
  for (const nlohmann::json& length : trace["acceptance_lengths"]) kept += length.get<int64_t>();
  EXPECT_EQ(counts.kept, kept);
  std::vector<int64_t> text = decoder.result().tokens;
  const std::vector<int64_t> expected = expected_text(trace);
  ASSERT_GE(text.size(), expected.size());
  text.resize(expected.size());
  EXPECT_EQ(text, expected);
}

// Every trace in dspark/DRAFT/NAME.json, if the draft has that kind.
int replay(const std::string& draft, const std::string& name) {
  const std::string file = "dspark/" + draft + "/" + name + ".json";
  if (!std::filesystem::exists(test::golden(file))) return 0;
  const auto proposer = draft::load_block_proposer(test::golden("dspark/" + draft), golden_target());
  const nlohmann::json traces = test::golden_json(file);
  int cases = 0;
  for (const nlohmann::json& trace : traces) {
    SCOPED_TRACE(file + " case " + std::to_string(cases++));
    DecodeOptions options = options_of(trace);
    if (trace.contains("draws")) {
      Replay uniforms(trace["draws"]);
      options.uniforms = &uniforms;
      expect_rounds(trace, *proposer, options);
      EXPECT_TRUE(uniforms.finished());
      continue;
    }
    expect_rounds(trace, *proposer, options);
    // With the limit in place the text is the same, and so is the text without a draft.
    const std::vector<int64_t> prompt = ids(trace["prompt_ids"]);
    EXPECT_EQ(decode_speculative(*golden_target(), *proposer, prompt, options).tokens, expected_text(trace));
    EXPECT_EQ(decode_plain(*golden_target(), prompt, options).tokens, expected_text(trace));
  }
  return cases;
}

constexpr const char* kDrafts[] = {"vanilla_fitted", "rnn_fitted", "dflash_fitted"};

TEST(GoldenTraces, Greedy) {
  for (const char* draft : kDrafts) EXPECT_GT(replay(draft, "decode"), 0) << draft;
}

TEST(GoldenTraces, GreedyWithAStopToken) {
  for (const char* draft : kDrafts) EXPECT_GT(replay(draft, "decode_stop"), 0) << draft;
}

TEST(GoldenTraces, SampledWithExplicitDraws) {
  for (const char* draft : kDrafts) EXPECT_GT(replay(draft, "decode_sampling"), 0) << draft;
}

TEST(GoldenTraces, CutByConfidence) { EXPECT_GT(replay("vanilla_fitted", "decode_threshold"), 0); }

TEST(GoldenTraces, TheDistributionsOfTheFirstRoundsAreTheRecordedOnes) {
  for (const std::string draft : kDrafts) {
    const std::string stem = "dspark/" + draft + "/decode_sampling";
    const nlohmann::json trace = test::golden_json(stem + ".json")[0];
    const test::GoldenTensors tensors(stem + ".safetensors");
    const auto proposer = draft::load_block_proposer(test::golden("dspark/" + draft), golden_target());
    Replay uniforms(trace["draws"]);
    DecodeOptions options = options_of(trace);
    options.sampling.max_new_tokens += proposer->max_tokens() + 1;
    options.uniforms = &uniforms;
    int seen = 0;
    options.verifier = [&](const TargetRows& target, const draft::Proposal& proposal, const VerifyDraws& draws,
                           std::span<const int64_t> stops) {
      const std::string prefix = "case0.round" + std::to_string(seen++) + ".";
      if (tensors.has(prefix + "draft_probs")) {
        EXPECT_TRUE(test::close(target.probabilities, tensors[prefix + "target_probs"][0])) << stem << prefix;
        EXPECT_TRUE(test::close(proposal.probabilities, tensors[prefix + "draft_probs"][0])) << stem << prefix;
        if (tensors.has(prefix + "confidence_logits")) {
          at::Tensor expected = tensors[prefix + "confidence_logits"][0].contiguous();
          EXPECT_EQ(static_cast<int64_t>(proposal.confidence.size()), expected.numel());
          for (size_t k = 0; k < proposal.confidence.size(); ++k) {
            EXPECT_NEAR(proposal.confidence[k], expected.const_data_ptr<float>()[k], 1e-4) << stem << prefix << k;
          }
        }
      }
      return verify(target, proposal, draws, stops);
    };
    SpeculativeDecoder decoder(*golden_target(), *proposer, ids(trace["prompt_ids"]), options);
    decoder.round();
    decoder.round();
    EXPECT_EQ(seen, 2);
  }
}

TEST(GoldenTraces, TheLayoutWhoseFirstSlotIsTheAnchor) {
  const auto proposer = draft::load_block_proposer(test::golden("specforge_dflash/dflash_fitted"), golden_target());
  const nlohmann::json traces = test::golden_json("specforge_dflash/dflash_fitted/decode.json");
  ASSERT_GE(traces.size(), 3u);
  for (const nlohmann::json& trace : traces) {
    DecodeOptions options = options_of(trace);
    const std::vector<int64_t> prompt = ids(trace["prompt_ids"]);
    EXPECT_EQ(decode_speculative(*golden_target(), *proposer, prompt, options).tokens, expected_text(trace));
    EXPECT_EQ(decode_plain(*golden_target(), prompt, options).tokens, expected_text(trace));
    options.sampling.max_new_tokens += proposer->max_tokens() + 1;
    SpeculativeDecoder decoder(*golden_target(), *proposer, prompt, options);
    for (const nlohmann::json& block : trace["blocks_verified"]) {
      decoder.round();
      EXPECT_EQ(decoder.result().rounds.back().verified, ids(block));
    }
    EXPECT_EQ(decoder.result().counts().rounds, trace["verify_count"].get<int64_t>());
  }
}

}  // namespace
}  // namespace pacer::decode
