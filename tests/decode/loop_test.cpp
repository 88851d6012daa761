#include "pacer/decode/loop.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "pacer/decode/prompt_lookup.h"
#include "tests/decode/toy.h"

namespace pacer::decode {
namespace {

constexpr int64_t kVocab = 12;

const test::ToyTarget& toy_target() {
  static const test::ToyTarget target(kVocab, 3, 2.0);
  return target;
}

// Knows what the target does on average after one token, with some noise: often right, and often wrong.
test::ToyProposer good_draft(int64_t width, uint64_t seed = 1) {
  const at::Tensor noise = test::toy_table(kVocab, kVocab, seed, 0.3);
  const at::Tensor mean = toy_target().table().view({kVocab, kVocab, kVocab}).mean(0);
  return {"good", width, [=](int64_t, int64_t previous, int64_t) { return mean[previous] + noise[previous]; }};
}

DecodeOptions greedy(int64_t max_new_tokens, std::vector<int64_t> stops = {}) {
  DecodeOptions options;
  options.sampling.max_new_tokens = max_new_tokens;
  options.sampling.stop_ids = std::move(stops);
  return options;
}

TEST(DecodePlain, FollowsTheLikeliestTokens) {
  const Decoded decoded = decode_plain(toy_target(), {3, 7}, greedy(20));
  EXPECT_EQ(decoded.tokens, toy_target().greedy({3, 7}, 20));
  EXPECT_EQ(decoded.finish, Finish::length);
  EXPECT_TRUE(
      std::all_of(decoded.origins.begin(), decoded.origins.end(), [](Origin o) { return o == Origin::target; }));
}

TEST(DecodePlain, ComputesEveryPositionOnce) {
  const test::ToyTarget target(kVocab, 3, 2.0);
  decode_plain(target, {3, 7, 1}, greedy(20));
  EXPECT_EQ(target.forwards, 20);  // the prompt, then one for every token but the last
  EXPECT_EQ(target.rows, 3 + 19);
}

RC_GTEST_PROP(DecodeSpeculative, GreedyTextIsThePlainTextForEveryWidthDraftLimitAndStop, ()) {
  const auto width = *rc::gen::inRange<int64_t>(1, 9);
  const auto seed = *rc::gen::inRange<uint64_t>(0, 1000);
  const auto limit = *rc::gen::inRange<int64_t>(1, 40);
  const auto prompt =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, kVocab)));
  const auto stops = *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 3 * kVocab));
  const bool lookup = *rc::gen::arbitrary<bool>();
  test::ToyProposer draft = good_draft(width, seed);
  PromptLookup looking(width);
  draft::Proposer& proposer = lookup ? static_cast<draft::Proposer&>(looking) : draft;

  const Decoded plain = decode_plain(toy_target(), prompt, greedy(limit, stops));
  const Decoded fast = decode_speculative(toy_target(), proposer, prompt, greedy(limit, stops));
  RC_ASSERT(fast.tokens == plain.tokens);
  RC_ASSERT(fast.finish == plain.finish);
  RC_ASSERT(fast.origins.size() == fast.tokens.size());
  const AcceptanceCounts counts = fast.counts();
  RC_ASSERT(counts.kept == static_cast<int64_t>(fast.tokens.size()) - 1);
}

TEST(DecodeSpeculative, GivesTheSameTextInFewerPasses) {
  const test::ToyTarget plain(kVocab, 3, 2.0), fast(kVocab, 3, 2.0);
  test::ToyProposer draft = good_draft(4);
  const std::vector<int64_t> expected = decode_plain(plain, {1, 2}, greedy(60)).tokens;
  const Decoded decoded = decode_speculative(fast, draft, {1, 2}, greedy(60));
  EXPECT_EQ(decoded.tokens, expected);
  EXPECT_EQ(fast.forwards, 1 + decoded.counts().rounds);
  EXPECT_LT(fast.forwards, plain.forwards - 10);
}

TEST(DecodeSpeculative, TellsTheDraftWhatWasCommitted) {
  test::ToyProposer draft = good_draft(4);
  const Decoded decoded = decode_speculative(toy_target(), draft, {1, 2}, greedy(60));
  std::vector<int64_t> text = {1, 2};
  text.insert(text.end(), decoded.tokens.begin(), decoded.tokens.end());
  ASSERT_LT(draft.history.size(), text.size());
  EXPECT_TRUE(std::equal(draft.history.begin(), draft.history.end(), text.begin()));
  EXPECT_GT(draft.history.size(), text.size() - 7);
}

TEST(DecodeSpeculative, NeverProposesBeyondTheLimit) {
  test::ToyProposer draft = good_draft(8);
  const Decoded decoded = decode_speculative(toy_target(), draft, {1, 2}, greedy(30));
  EXPECT_EQ(decoded.tokens.size(), 30u);
  int64_t produced = 1;
  for (const RoundRecord& round : decoded.rounds) {
    EXPECT_LE(produced + static_cast<int64_t>(round.verified.size()), 30);  // drafts and the token behind them
    produced += round.kept();
  }
  EXPECT_EQ(produced, 30);
}

TEST(DecodeSpeculative, ReportsTokensWithTheirOriginAsTheyBecomeCertain) {
  test::ToyProposer draft = good_draft(4);
  DecodeOptions options = greedy(40);
  std::vector<std::pair<int64_t, Origin>> seen;
  options.on_token = [&](int64_t token, Origin origin) { seen.emplace_back(token, origin); };
  const Decoded decoded = decode_speculative(toy_target(), draft, {5}, options);
  ASSERT_EQ(seen.size(), decoded.tokens.size());
  EXPECT_EQ(seen[0].second, Origin::target);
  size_t i = 1;
  for (const RoundRecord& round : decoded.rounds) {
    for (int64_t k = 0; k < round.accepted; ++k, ++i) {
      EXPECT_EQ(seen[i], std::make_pair(round.verified[static_cast<size_t>(k) + 1], Origin::drafted));
    }
    const bool all = round.accepted + 1 == static_cast<int64_t>(round.verified.size());
    EXPECT_EQ(seen[i++], std::make_pair(round.next_token, all ? Origin::bonus : Origin::corrected));
  }
  EXPECT_EQ(i, seen.size());
}

TEST(DecodeSpeculative, StopsAtADraftedStopTokenWithoutABonus) {
  test::ToyProposer draft = good_draft(4);
  const Decoded endless = decode_speculative(toy_target(), draft, {5}, greedy(60));
  // The first token that is new where it was drafted can serve as the stop token.
  size_t place = 0;
  for (; place < endless.tokens.size(); ++place) {
    const auto here = endless.tokens.begin() + static_cast<std::ptrdiff_t>(place);
    if (endless.origins[place] == Origin::drafted && std::find(endless.tokens.begin(), here, *here) == here) break;
  }
  ASSERT_LT(place, endless.tokens.size());
  const int64_t stop = endless.tokens[place];
  const Decoded decoded = decode_speculative(toy_target(), draft, {5}, greedy(60, {stop}));
  EXPECT_EQ(decoded.tokens.size(), place + 1);
  EXPECT_EQ(decoded.finish, Finish::stop);
  EXPECT_TRUE(decoded.rounds.back().stopped);
  EXPECT_EQ(decoded.rounds.back().next_token, -1);
}

TEST(DecodeSpeculative, AStopTokenAfterThePromptNeedsNoDraft) {
  test::ToyProposer draft = good_draft(4);
  const int64_t first = toy_target().greedy({5}, 1)[0];
  const Decoded decoded = decode_speculative(toy_target(), draft, {5}, greedy(60, {first}));
  EXPECT_EQ(decoded.tokens, std::vector<int64_t>{first});
  EXPECT_TRUE(decoded.rounds.empty());
}

TEST(DecodeSpeculative, VerifiesLongProposalsInPiecesTheTargetIsExactFor) {
  const test::ToyTarget target(kVocab, 3, 2.0);
  test::ToyProposer draft = good_draft(target::kExactRows + 20);
  const Decoded decoded = decode_speculative(target, draft, {5, 6}, greedy(2 * target::kExactRows));
  EXPECT_EQ(decoded.tokens, target.greedy({5, 6}, 2 * target::kExactRows));
  EXPECT_EQ(target.most_rows, target::kExactRows);
}

TEST(DecodeSpeculative, EndsWithTheTargetsPositions) {
  test::ToyTarget target(kVocab, 3, 2.0);
  target.mutable_config().max_position = 20;
  test::ToyProposer draft = good_draft(4);
  const std::vector<int64_t> prompt(15, 1);
  for (const Decoded& decoded :
       {decode_plain(target, prompt, greedy(60)), decode_speculative(target, draft, prompt, greedy(60))}) {
    EXPECT_EQ(decoded.tokens.size(), 5u);
    EXPECT_EQ(decoded.finish, Finish::context);
  }
  EXPECT_THROW(decode_plain(target, std::vector<int64_t>(20, 1), greedy(60)), Error);
  EXPECT_THROW(decode_plain(target, {}, greedy(60)), Error);
}

TEST(DecodeSpeculative, AThresholdWithoutAConfidenceHeadIsAnError) {
  test::ToyProposer draft = good_draft(4);
  DecodeOptions options = greedy(20);
  options.confidence_threshold = 0.5;
  EXPECT_THROW(decode_speculative(toy_target(), draft, {5}, options), Error);
}

TEST(DecodeSpeculative, SampledTextDependsOnSeedAndSampleOnly) {
  test::ToyProposer draft = good_draft(4);
  DecodeOptions options = greedy(60);
  options.sampling.temperature = 1.0;
  options.sampling.seed = 4;
  options.sample = 9;
  const Decoded once = decode_speculative(toy_target(), draft, {5}, options);
  DecodeOptions other = options;
  other.sample = 10;
  EXPECT_NE(decode_speculative(toy_target(), draft, {5}, other).tokens, once.tokens);
  EXPECT_EQ(decode_speculative(toy_target(), draft, {5}, options).tokens, once.tokens);
}

TEST(DecodeSpeculative, EverySecondBelongsToOnePhase) {
  test::ToyProposer draft = good_draft(4);
  const Seconds before = PhaseClock::now();
  const PhaseTimes times = decode_speculative(toy_target(), draft, {5}, greedy(200)).times;
  const Seconds after = PhaseClock::now();
  for (const Seconds& phase : {times.prefill, times.draft, times.verify, times.sample, times.other}) {
    EXPECT_GT(phase.wall, 0.0);
  }
  EXPECT_LE(times.total().wall, after.wall - before.wall);
  // Of what the process computed: on a busy machine the wall clock also runs while it waits for its turn.
  EXPECT_GT(times.total().cpu, 0.8 * (after.cpu - before.cpu));
}

TEST(PromptLookup, ProposesWhatFollowedTheLatestLongestMatch) {
  PromptLookup lookup(3, 3, 1);
  const auto proposed = [&](std::vector<int64_t> history, int64_t anchor, int64_t limit = 10) {
    lookup.start(history, {});
    return lookup.propose(anchor, limit, true, {}).tokens;
  };
  // "2 3" was followed by 4 and later by 7; the latest counts
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 2, 3, 7, 8, 9, 2}, 3), (std::vector<int64_t>{7, 8, 9}));
  // "1 2 3" beats the later "2 3"
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 2, 3, 7, 8, 1, 2}, 3), (std::vector<int64_t>{4, 5, 2}));
  EXPECT_EQ(proposed({1, 2, 3, 4, 5, 2, 3, 7, 8, 1, 2}, 3, 2), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(proposed({1, 2, 3}, 9), std::vector<int64_t>{});
  // up to and with the anchor itself
  EXPECT_EQ(proposed({6, 6}, 6), std::vector<int64_t>{6});
  lookup.start({1, 2}, {});
  lookup.advance({3, 4}, {});
  EXPECT_EQ(lookup.propose(1, 10, true, {}).tokens, (std::vector<int64_t>{2, 3, 4}));
  EXPECT_THROW(PromptLookup(3, 1, 2), Error);
}

}  // namespace
}  // namespace pacer::decode
