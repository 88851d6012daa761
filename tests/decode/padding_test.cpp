// Report 24: rows of the head that only pad the vocabulary are never written, drafted or sampled.
#include <algorithm>

#include <gtest/gtest.h>

#include "pacer/decode/batch_generate.h"
#include "pacer/decode/loop.h"
#include "pacer/decode/prompt_lookup.h"
#include "tests/decode/toy.h"

namespace pacer::decode {
namespace {

constexpr int64_t kRows = 12, kTokens = 9;

// The padded rows win everywhere unless they are left out.
class Padded final : public test::ToyTarget {
 public:
  Padded() : ToyTarget(kRows, 4, 2.0) {}
  at::Tensor logits(const at::Tensor& last) const override {
    at::Tensor all = ToyTarget::logits(last).clone();
    all.slice(1, kTokens, kRows).add_(100.0);
    return all;
  }
};

test::ToyProposer padded_draft(const test::ToyTarget& target) {
  const at::Tensor mean = target.table().view({kRows, kRows, kRows}).mean(0).clone();
  mean.slice(1, kTokens, kRows).add_(100.0);
  return {"toy", 4, [=](int64_t, int64_t previous, int64_t) { return mean[previous]; }, {}};
}

DecodeOptions options_of(double temperature, int64_t vocabulary) {
  DecodeOptions options;
  options.sampling.temperature = temperature;
  options.sampling.vocabulary = vocabulary;
  options.sampling.max_new_tokens = 40;
  return options;
}

bool holds_padding(const std::vector<int64_t>& tokens) {
  return std::any_of(tokens.begin(), tokens.end(), [](int64_t token) { return token >= kTokens; });
}

TEST(Padding, Report24IsNeverWritten) {
  const Padded target;
  const std::vector<int64_t> prompt = {1, 10, 2, 1, 10};  // a stranger's prompt may hold such an id all the same
  for (const double temperature : {0.0, 1.0}) {
    EXPECT_TRUE(holds_padding(decode_plain(target, prompt, options_of(temperature, 0)).tokens)) << "the danger is real";
    const DecodeOptions options = options_of(temperature, kTokens);
    const Decoded plain = decode_plain(target, prompt, options);
    EXPECT_FALSE(holds_padding(plain.tokens));

    test::ToyProposer draft = padded_draft(target);
    const Decoded fast = decode_speculative(target, draft, prompt, options);
    EXPECT_FALSE(holds_padding(fast.tokens));
    PromptLookup lookup;
    const Decoded looked_up = decode_speculative(target, lookup, prompt, options);
    EXPECT_FALSE(holds_padding(looked_up.tokens));
    for (const RoundRecord& round : fast.rounds) EXPECT_FALSE(holds_padding(round.verified));
    if (temperature == 0.0) {
      EXPECT_EQ(fast.tokens, plain.tokens);
      EXPECT_EQ(looked_up.tokens, plain.tokens);
      EXPECT_LT(fast.rounds.size(), 39u) << "the draft is worth something";
    }
  }
}

TEST(Padding, TheRestKeepsItsDistribution) {
  const at::Tensor logits = test::toy_table(3, kRows, 7, 1.0);
  SamplingOptions options;
  options.temperature = 0.8;
  options.vocabulary = kTokens;
  const at::Tensor law = distribution(without_padding(logits, kRows, options), options);
  ASSERT_EQ(law.size(1), kTokens);
  const at::Tensor expected = distribution(logits.slice(1, 0, kTokens).contiguous(), options);
  EXPECT_TRUE(law.equal(expected));
  EXPECT_EQ(without_padding(test::toy_table(3, 5, 7, 1.0), kRows, options).size(1), 5) << "a draft's own rows";
}

}  // namespace
}  // namespace pacer::decode
