// What a text before has computed is not computed again, and the text is the same.
#include "pacer/decode/prompt_memory.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "pacer/decode/loop.h"
#include "pacer/decode/prompt_lookup.h"
#include "pacer/draft/block_proposer.h"
#include "tests/decode/toy.h"
#include "tests/support/files.h"

namespace pacer::decode {
namespace {

using Tokens = std::vector<int64_t>;
constexpr int64_t kVocab = 12;

test::ToyProposer toy_draft(int64_t width) {
  const at::Tensor table = test::toy_table(kVocab, kVocab, 1, 1.0);
  return {"toy", width, [=](int64_t, int64_t previous, int64_t) { return table[previous]; }};
}

DecodeOptions options_of(int64_t limit, PromptMemory* memory, Tokens stops = {}) {
  DecodeOptions options;
  options.sampling.max_new_tokens = limit;
  options.sampling.stop_ids = std::move(stops);
  options.memory = memory;
  return options;
}

RC_GTEST_PROP(PromptMemory, TextsAreTheSameWhateverIsRemembered, ()) {
  const auto width = *rc::gen::inRange<int64_t>(1, 6);
  const auto beginning = *rc::gen::container<Tokens>(rc::gen::inRange<int64_t>(0, kVocab));
  const auto stops = *rc::gen::container<Tokens>(rc::gen::inRange<int64_t>(0, 3 * kVocab));
  const test::ToyTarget target(kVocab, 3, 2.0);
  PromptMemory plain_memory, memory, lookup_memory;
  test::ToyProposer draft = toy_draft(width);
  PromptLookup lookup(width);
  Tokens before;  // a whole text: the next prompt of a conversation begins with it
  for (int text = 0; text < 4; ++text) {
    Tokens prompt = *rc::gen::arbitrary<bool>() ? beginning : before;
    const auto own = *rc::gen::nonEmpty(rc::gen::container<Tokens>(rc::gen::inRange<int64_t>(0, kVocab)));
    prompt.insert(prompt.end(), own.begin(), own.end());
    const auto limit = *rc::gen::inRange<int64_t>(1, 20);
    const Decoded expected = decode_plain(target, prompt, options_of(limit, nullptr, stops));
    RC_ASSERT(decode_plain(target, prompt, options_of(limit, &plain_memory, stops)).tokens == expected.tokens);
    RC_ASSERT(decode_speculative(target, draft, prompt, options_of(limit, &memory, stops)).tokens == expected.tokens);
    RC_ASSERT(decode_speculative(target, lookup, prompt, options_of(limit, &lookup_memory, stops)).tokens ==
              expected.tokens);
    before = prompt;
    before.insert(before.end(), expected.tokens.begin(), expected.tokens.end());
  }
}

TEST(PromptMemory, ASharedBeginningIsComputedOnce) {
  const Tokens first{3, 7, 1, 4, 4, 9}, second{3, 7, 1, 4, 5};
  for (const bool drafting : {false, true}) {
    const test::ToyTarget target(kVocab, 3, 2.0);
    PromptMemory memory;
    test::ToyProposer draft = toy_draft(3);
    const auto rows_of = [&](const Tokens& prompt) {
      const int64_t before = target.rows;
      const DecodeOptions options = options_of(1, &memory);  // the prompt alone gives one token
      drafting ? decode_speculative(target, draft, prompt, options) : decode_plain(target, prompt, options);
      return target.rows - before;
    };
    EXPECT_EQ(rows_of(first), 6);
    EXPECT_EQ(rows_of(second), 1);
    EXPECT_EQ(rows_of(second), 1) << "the last row of a prompt is always computed";
    EXPECT_EQ(rows_of({3}), 1);
    EXPECT_EQ(rows_of(first), 5) << "only the newest text is remembered";
  }
}

TEST(PromptMemory, AConversationGoesOnWhereItsAnswerEnded) {
  for (const bool drafting : {false, true}) {
    const test::ToyTarget target(kVocab, 3, 2.0);
    PromptMemory memory;
    test::ToyProposer draft = toy_draft(3);
    const DecodeOptions options = options_of(9, &memory);
    Tokens prompt{3, 7, 1};
    const auto decode = [&] {
      return drafting ? decode_speculative(target, draft, prompt, options) : decode_plain(target, prompt, options);
    };
    const Tokens answer = decode().tokens;
    ASSERT_EQ(answer.size(), 9U);
    prompt.insert(prompt.end(), answer.begin(), answer.end());
    prompt.push_back(2);
    const auto known = memory.take(prompt, drafting ? draft.taps() : target::Taps{});
    // The newest token of a text has not been through the target, nor has a draft behind the end.
    EXPECT_EQ(known.length, 3 + 8);
    EXPECT_EQ(known.cache->length(), known.length);
    EXPECT_EQ(known.tapped.defined(), drafting);
    if (drafting) EXPECT_EQ(known.tapped.size(0), known.length);
  }
}

TEST(PromptMemory, OtherTapsShareNothing) {
  const test::ToyTarget target(kVocab, 3, 2.0);
  PromptMemory memory;
  const Tokens prompt{3, 7, 1};
  decode_plain(target, prompt, options_of(2, &memory));
  EXPECT_EQ(memory.take(prompt, {0}).cache, nullptr);
  EXPECT_EQ(memory.take(prompt, {}).cache, nullptr) << "taking forgets";
}

TEST(PromptMemory, ACacheWithoutItsTokensIsRefused) {
  const test::ToyTarget target(kVocab, 3, 2.0);
  auto cache = std::make_unique<test::ToyCache>();
  cache->ids = {1, 2, 3};
  PromptMemory memory;
  EXPECT_THROW(memory.keep(std::move(cache), {1, 2}, {}, {}), Error);
}

// The real kernels: bits of logits, not only tokens.
class PromptMemoryBits : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(PromptMemoryBits, AreThoseOfATextThatRemembersNothing) {
  auto runtime = device::Runtime::open("cpu");
  const std::shared_ptr<const target::Target> target =
      target::Target::load(test::golden("dspark/target"), GetParam(), runtime);
  const auto draft = draft::load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  PromptMemory plain_memory, memory;
  for (const int64_t own : {33, 35, 24}) {
    Tokens prompt{76, 53, 71, 9, 77, 12, 40, 8, 61, 5, 19, 23, 54, 70, 2, 66, 31, 47};
    prompt.push_back(own);
    const auto logits_of = [&](PromptMemory* known) {
      std::vector<std::vector<float>> rows;
      DecodeOptions options = options_of(20, known);
      options.on_logits = [&](const at::Tensor& row) {
        rows.emplace_back(row.const_data_ptr<float>(), row.const_data_ptr<float>() + row.numel());
      };
      decode_plain(*target, prompt, options);
      return rows;
    };
    EXPECT_EQ(logits_of(&plain_memory), logits_of(nullptr)) << own;
    const Decoded alone = decode_speculative(*target, *draft, prompt, options_of(40, nullptr));
    const Decoded remembered = decode_speculative(*target, *draft, prompt, options_of(40, &memory));
    EXPECT_EQ(remembered.tokens, alone.tokens) << own;
    EXPECT_EQ(remembered.counts().to_json(), alone.counts().to_json()) << "the draft sees the same features";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PromptMemoryBits, ::testing::Values(at::kFloat, at::kBFloat16),
                         [](const auto& info) { return info.param == at::kFloat ? "f32" : "bf16"; });

}  // namespace
}  // namespace pacer::decode
