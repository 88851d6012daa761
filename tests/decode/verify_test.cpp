#include "pacer/decode/verify.h"

#include <string>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/decode/statistics.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

std::vector<double> doubles(const at::Tensor& tensor) {
  std::vector<double> result;
  for (int64_t i = 0; i < tensor.numel(); ++i) result.push_back(tensor.view({-1})[i].item<double>());
  return result;
}

std::span<const float> row_of(const at::Tensor& matrix, int64_t row) {
  const auto width = static_cast<size_t>(matrix.size(1));
  return {matrix.const_data_ptr<float>() + static_cast<size_t>(row) * width, width};
}

struct ChainCase {
  TargetRows target;
  draft::Proposal proposal;
  VerifyDraws draws;
  std::vector<int64_t> stops;
};

ChainCase chain_case(const test::GoldenTensors& tensors, const nlohmann::json& expected) {
  const std::string prefix = std::to_string(expected["index"].get<int>()) + ".";
  ChainCase made;
  made.target.probabilities = tensors[prefix + "p"];
  if (tensors.has(prefix + "q")) {
    made.proposal.probabilities = tensors[prefix + "q"];
    const at::Tensor tokens = tensors[prefix + "draft_tokens"];
    made.proposal.tokens.assign(tokens.const_data_ptr<int64_t>(), tokens.const_data_ptr<int64_t>() + tokens.numel());
  }
  made.draws.accept = doubles(tensors[prefix + "accept_uniforms"]);
  made.draws.token = expected["final_uniform"].get<double>();
  if (!expected["stop_token_ids"].is_null()) made.stops = expected["stop_token_ids"].get<std::vector<int64_t>>();
  return made;
}

TEST(Verify, DecidesEveryGoldenChain) {
  const test::GoldenTensors tensors("spec_sampling/chain.safetensors");
  const nlohmann::json cases = test::golden_json("spec_sampling/chain.json");
  ASSERT_GE(cases.size(), 30u);
  for (const nlohmann::json& expected : cases) {
    SCOPED_TRACE(expected["name"].get<std::string>() + " " + std::to_string(expected["index"].get<int>()));
    const ChainCase chain = chain_case(tensors, expected);
    const Verification found = verify(chain.target, chain.proposal, chain.draws, chain.stops);
    EXPECT_EQ(found.accepted, expected["accepted"].get<int64_t>());
    EXPECT_EQ(found.judged, expected["effective_proposal_length"].get<int64_t>());
    EXPECT_EQ(found.stopped, expected["terminated_by_stop_token"].get<bool>());
    std::vector<int64_t> committed(chain.proposal.tokens.begin(), chain.proposal.tokens.begin() + found.accepted);
    if (!found.stopped) committed.push_back(found.next_token);
    // The reference also draws a token behind an accepted stop token; its text is cut at the stop token.
    auto text = expected["committed_tokens"].get<std::vector<int64_t>>();
    if (found.stopped) text.pop_back();
    EXPECT_EQ(committed, text);
  }
}

TEST(Verify, DrawsTheTokenBehindThePrefixFromTheGoldenLaw) {
  const test::GoldenTensors tensors("spec_sampling/chain.safetensors");
  int rejected = 0;
  for (const nlohmann::json& expected : test::golden_json("spec_sampling/chain.json")) {
    const std::string law_name = std::to_string(expected["index"].get<int>()) + ".final_distribution";
    if (!tensors.has(law_name)) continue;
    const ChainCase chain = chain_case(tensors, expected);
    const auto accepted = expected["accepted"].get<int64_t>();
    if (accepted == static_cast<int64_t>(chain.proposal.tokens.size())) continue;
    const std::vector<double> found =
        residual(row_of(chain.target.probabilities, accepted), row_of(chain.proposal.probabilities, accepted));
    const std::vector<double> law = doubles(tensors[law_name]);
    ASSERT_EQ(found.size(), law.size());
    for (size_t i = 0; i < law.size(); ++i) EXPECT_NEAR(found[i], law[i], 1e-6) << law_name << " " << i;
    ++rejected;
  }
  EXPECT_GE(rejected, 10);
}

TEST(Verify, AOneHotDraftNeedsNoDistribution) {
  const test::GoldenTensors tensors("spec_sampling/chain.safetensors");
  for (const nlohmann::json& expected : test::golden_json("spec_sampling/chain.json")) {
    if (expected["name"] != "one-hot draft") continue;
    ChainCase chain = chain_case(tensors, expected);
    chain.proposal.probabilities = at::Tensor();
    const Verification found = verify(chain.target, chain.proposal, chain.draws, chain.stops);
    EXPECT_EQ(found.accepted, expected["accepted"].get<int64_t>());
    EXPECT_EQ(found.next_token, expected["next_token"].get<int64_t>());
    return;
  }
  FAIL() << "the golden file has no one-hot draft";
}

TEST(Verify, GreedyTokensDecideLikeOneHotRows) {
  const test::GoldenTensors tensors("spec_sampling/chain.safetensors");
  int cases = 0;
  for (const nlohmann::json& expected : test::golden_json("spec_sampling/chain.json")) {
    if (!expected["name"].get<std::string>().starts_with("one-hot target")) continue;
    ChainCase chain = chain_case(tensors, expected);
    for (int64_t i = 0; i < chain.target.probabilities.size(0); ++i) {
      chain.target.greedy.push_back(chain.target.probabilities[i].argmax().item<int64_t>());
    }
    chain.target.probabilities = at::Tensor();
    const Verification found = verify(chain.target, chain.proposal, {}, chain.stops);
    EXPECT_EQ(found.accepted, expected["accepted"].get<int64_t>());
    EXPECT_EQ(found.next_token, expected["next_token"].get<int64_t>());
    ++cases;
  }
  EXPECT_EQ(cases, 2);
}

TEST(Verify, CountsDraftsThatPassedBehindAStopToken) {
  const TargetRows target{{4, 7, 5, 6}, {}};
  draft::Proposal proposal;
  proposal.tokens = {4, 7, 5};
  const std::vector<int64_t> stops = {7};
  const Verification found = verify(target, proposal, {}, stops);
  EXPECT_EQ(found.accepted, 2);
  EXPECT_EQ(found.accepted_raw, 3);
  EXPECT_EQ(found.judged, 2);
  EXPECT_TRUE(found.stopped);
  EXPECT_EQ(found.next_token, -1);
}

TEST(Verify, RefusesShapesThatDoNotFit) {
  draft::Proposal proposal;
  proposal.tokens = {1, 2};
  EXPECT_THROW(verify({{1, 2}, {}}, proposal, {}, {}), Error);  // a row is missing
}

TEST(AcceptanceCounts, GiveTheGoldenSumsAndRates) {
  const nlohmann::json golden = test::golden_json("spec_sampling/acceptance_metrics.json");
  AcceptanceCounts total;
  for (const nlohmann::json& response : golden["responses"]) {
    AcceptanceCounts counts;  // summed per response first: the figures must not depend on the order of adding
    counts.samples = 1;
    for (size_t r = 0; r < response["acceptance_lengths"].size(); ++r) {
      RoundRecord round;
      round.proposed = response["proposal_lengths"][r].get<int64_t>();
      round.accepted = round.accepted_raw = response["accepted_draft_lengths"][r].get<int64_t>();
      round.stopped = response["acceptance_lengths"][r].get<int64_t>() == round.accepted;
      counts.add(round);
    }
    total.add(counts);
  }
  const nlohmann::json& sums = golden["sums"];
  EXPECT_EQ(total.samples, sums["sample_count"].get<int64_t>());
  EXPECT_EQ(total.rounds, sums["proposal_count"].get<int64_t>());
  EXPECT_EQ(total.kept, sums["acceptance_length_sum"].get<int64_t>());
  EXPECT_EQ(total.proposed, sums["proposal_length_sum"].get<int64_t>());
  EXPECT_EQ(total.proposed_at, sums["proposals_at_pos"].get<std::vector<int64_t>>());
  EXPECT_EQ(total.accepted_at, sums["accepted_at_pos"].get<std::vector<int64_t>>());
  const nlohmann::json& row = golden["row"];
  EXPECT_NEAR(*total.drafts_per_round(), row["draft_tokens_per_proposal"].get<double>(), 1e-12);
  EXPECT_NEAR(*total.acceptance_length(), row["acceptance_length"].get<double>(), 1e-12);
  EXPECT_NEAR(*total.verify_rate(), row["verify_rate"].get<double>(), 1e-12);
  const auto survival = total.survival();
  for (size_t k = 0; k < survival.size(); ++k) {
    EXPECT_NEAR(*survival[k], row["accept_rates_by_position"][k].get<double>(), 1e-12) << k;
  }
}

TEST(AcceptanceCounts, TellSurvivalFromConditionalAcceptance) {
  AcceptanceCounts counts;
  for (const int64_t accepted : {0, 3, 1, 3}) {
    RoundRecord round;
    round.proposed = 3;
    round.accepted = round.accepted_raw = accepted;
    counts.add(round);
  }
  EXPECT_DOUBLE_EQ(*counts.acceptance_length(), 2.75);
  EXPECT_DOUBLE_EQ(*counts.survival()[1], 0.5);
  EXPECT_DOUBLE_EQ(*counts.conditional()[1], 2.0 / 3.0);
  EXPECT_DOUBLE_EQ(*counts.conditional()[2], 1.0);
  EXPECT_TRUE(AcceptanceCounts().to_json()["acceptance_length"].is_null());
}

}  // namespace
}  // namespace pacer::decode
