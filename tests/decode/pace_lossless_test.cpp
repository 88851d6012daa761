// Sampling under a pacing rule is distributed as sampling without a draft, because the rule looks at nothing that may
// still be rejected; a rule that does is caught by the same statistic.
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "pacer/decode/confidence.h"
#include "pacer/decode/pace.h"
#include "pacer/decode/prompt_lookup.h"
#include "tests/decode/costed.h"
#include "tests/decode/sampled_texts.h"

namespace pacer::decode {
namespace {

using test::CostedProposer;
using test::CostedTarget;
using test::kRejectBelow;
using test::kSurelyWrong;
using test::kVocab;
using test::Outcome;
using test::Prices;

// A pass over two rows costs as much as a slot is worth, one over three hardly more: whether the first slot should be
// verified hangs on the second.
Prices hard_choice() {
  Prices prices;
  prices.target = [](int64_t rows) { return rows == 1 ? 1.0 : 1.5 + 0.01 * static_cast<double>(rows); };
  prices.proposal = 0.05;
  return prices;
}

// The head is undecided about the first slot, sure of what follows tokens 0 and 1, and sure that nothing else is right.
// It knows the tokens before a slot only.
float certain_after_low_tokens(int64_t slot, int64_t previous) {
  return slot == 0 ? 0.0f : previous < 2 ? 4.0f : -4.0f;
}

// Looks past the slot it decides about: keeps the prefix that all confidences together favour, as a scheduler does that
// searches over finished proposals. Whether slot 0 is verified then depends on the token that was drawn for it.
class Leaky : public Pace {
 public:
  using Pace::Pace;
  int64_t keep(std::span<const float> confidence) override {
    const std::vector<double> survival = prefix_probabilities(confidence);
    double expected = 1.0, best = 1.0;
    int64_t kept = 0;
    for (size_t k = 0; k < survival.size(); ++k) {
      expected += survival[k];
      const double rate = expected / (1.5 + 0.01 * static_cast<double>(k + 2));
      if (rate > best) best = rate, kept = static_cast<int64_t>(k) + 1;
    }
    return kept;
  }
};

// Tries the draft in every round, so that the cut decides.
PaceOptions always(double& clock) {
  PaceOptions options;
  options.clock = [&clock] { return clock; };
  options.lookup = false;
  options.trying = 1.0;
  options.allowance = 1e9;
  return options;
}

template <typename Rule>
Outcome with_cuts() {
  double clock = 0.0;
  const CostedTarget target(kVocab, 5, 1.0, clock, hard_choice());
  test::ToyProposer markov = test::markov_draft(certain_after_low_tokens);
  CostedProposer proposer(markov, clock, hard_choice());
  Rule pace(always(clock));
  DecodeOptions options = test::sampled();
  options.pace = &pace;
  return decode_texts(target, target.table(), &proposer, options);
}

TEST(PaceLossless, CutsByConfidenceLeaveTheLawAsItIs) {
  const Outcome run = with_cuts<Pace>();
  EXPECT_GT(run.tail, kRejectBelow);
  EXPECT_GT(run.counts.proposed, run.counts.rounds / 4);
  EXPECT_LT(run.counts.proposed, run.counts.rounds * 5 / 2) << "something was cut";
}

TEST(PaceLossless, TheStatisticRejectsARuleThatLooksAhead) {
  const Outcome run = with_cuts<Leaky>();
  EXPECT_LT(run.tail, kSurelyWrong);
  EXPECT_GT(run.counts.proposed, run.counts.rounds / 4);
}

// Draft, lookup and idle rounds in one text, chosen by what earlier rounds did.
Outcome whole_rule(double proposal_price, double temperature) {
  double clock = 0.0;
  Prices prices;
  prices.proposal = proposal_price;
  const CostedTarget target(kVocab, 5, 1.0, clock, prices);
  test::ToyProposer markov = test::markov_draft(certain_after_low_tokens);
  CostedProposer proposer(markov, clock, prices);
  PaceOptions pacing;
  pacing.clock = [&clock] { return clock; };
  pacing.trying = 0.05;
  Pace pace(pacing);
  DecodeOptions options = test::sampled(temperature);
  options.pace = &pace;
  return decode_texts(target, target.table(), &proposer, options);
}

TEST(PaceLossless, ChoosingTheProposerByWhatWasSeenLeavesTheLawAsItIs) {
  const Outcome run = whole_rule(0.5, 0.6);
  EXPECT_GT(run.tail, kRejectBelow);
  const int64_t drafted = run.counts.rounds - run.counts.idle - run.counts.looked_up;
  for (const int64_t rounds : {run.counts.idle, run.counts.looked_up, drafted}) {
    EXPECT_GT(rounds, run.counts.rounds / 50) << "every source has its part";
  }
}

}  // namespace
}  // namespace pacer::decode
