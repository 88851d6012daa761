// The long form of the statistic: a million tokens for every way of sampling and every kind of draft.
#include <gtest/gtest.h>

#include "pacer/decode/pace.h"
#include "pacer/decode/prompt_lookup.h"
#include "tests/decode/sampled_texts.h"

namespace pacer::decode {
namespace {

constexpr int64_t kMillion = 1'000'000;

struct Sampling {
  double temperature, top_p;
  int64_t top_k;
};

class LosslessFull : public ::testing::TestWithParam<Sampling> {};

TEST_P(LosslessFull, PlainAndSpeculativeTextsHaveTheTargetsLaw) {
  DecodeOptions options = test::sampled(GetParam().temperature);
  options.sampling.top_p = GetParam().top_p;
  options.sampling.top_k = GetParam().top_k;
  const test::ToyTarget& target = test::toy_target();
  test::ToyProposer block = test::block_draft(), markov = test::markov_draft(), reduced = test::reduced_draft();
  PromptLookup lookup(3);
  for (draft::Proposer* proposer :
       std::initializer_list<draft::Proposer*>{nullptr, &block, &markov, &reduced, &lookup}) {
    const test::Outcome run = test::decode_texts(target, target.table(), proposer, options, kMillion);
    EXPECT_GT(run.tail, test::kRejectBelow) << (proposer ? proposer->name() : "plain");
  }
  Pace pace;
  options.pace = &pace;
  EXPECT_GT(test::decode_texts(target, target.table(), &markov, options, kMillion).tail, test::kRejectBelow) << "paced";
}

INSTANTIATE_TEST_SUITE_P(Sampling, LosslessFull,
                         ::testing::Values(Sampling{0.3, 1.0, 0}, Sampling{0.7, 1.0, 0}, Sampling{1.0, 1.0, 0},
                                           Sampling{1.5, 1.0, 0}, Sampling{1.0, 0.5, 0}, Sampling{1.0, 0.9, 0},
                                           Sampling{1.0, 1.0, 2}, Sampling{1.0, 1.0, 3}, Sampling{0.8, 0.85, 3}));

}  // namespace
}  // namespace pacer::decode
