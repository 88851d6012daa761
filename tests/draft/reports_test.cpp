// Entries of docs/known_failures.md about drafts at work and about what a draft folder holds.

#include <gmock/gmock.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/draft/block_proposer.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::draft {
namespace {

using ::testing::HasSubstr;

constexpr const char* kDraft = "dspark/vanilla_fitted";

std::shared_ptr<const target::Target> golden_target() {
  static const std::shared_ptr<const target::Target> target = [] {
    device::Runtime runtime = device::Runtime::open("cpu");
    return target::Target::load(test::golden("dspark/target"), at::kFloat, runtime);
  }();
  return target;
}

int64_t likeliest(const at::Tensor& logits, at::Tensor* law) {
  if (law != nullptr) *law = at::softmax(logits, 0);
  return logits.argmax().item<int64_t>();
}

std::vector<int64_t> text_of(int64_t length, int64_t salt) {
  std::vector<int64_t> text;
  for (int64_t i = 0; i < length; ++i) text.push_back((7 * i + salt * (i / 5)) % 90);
  return text;
}

at::Tensor features_of(const std::vector<int64_t>& text, const Proposer& proposer) {
  return golden_target()->forward(target::TokenBatch::single(text), proposer.taps()).tapped;
}

// Three taps: the context is three times as wide as a state of the draft. Prompts of many tiles, and one more token.
TEST(DraftReports, Report108LongPromptsAreTheSameAtOnceAndTokenByToken) {
  for (const int64_t length : {3 * 16 + 1, 3 * 64 + 1}) {
    const std::vector<int64_t> text = text_of(length, 1);
    const auto whole = load_block_proposer(test::golden(kDraft), golden_target());
    const auto steps = load_block_proposer(test::golden(kDraft), golden_target());
    ASSERT_EQ(whole->taps().size(), 3u);
    const at::Tensor tapped = features_of(text, *whole);
    EXPECT_EQ(tapped.sizes(), (std::vector<int64_t>{length, 3, golden_target()->config().hidden_size}));
    whole->start(text, tapped);
    steps->start({text[0]}, tapped.slice(0, 0, 1));
    for (int64_t i = 1; i < length; ++i) steps->advance({text[static_cast<size_t>(i)]}, tapped.slice(0, i, i + 1));
    const Proposal a = whole->propose(5, whole->max_tokens(), false, likeliest),
                   b = steps->propose(5, steps->max_tokens(), false, likeliest);
    EXPECT_FALSE(a.tokens.empty());
    EXPECT_EQ(a.tokens, b.tokens) << length;
    EXPECT_TRUE(test::close(a.probabilities, b.probabilities, 1e-5, 1e-4)) << length;
  }
}

// A second request that begins as the first did, and rounds in between in which nothing was asked of the draft.
TEST(DraftReports, Report109ASecondRequestWithTheSameBeginningStartsWhereItIs) {
  const std::vector<int64_t> shared = text_of(20, 3);
  std::vector<int64_t> first = shared, second = shared;
  for (const int64_t id : text_of(6, 4)) first.push_back(id);
  for (const int64_t id : text_of(31, 5)) second.push_back(id);
  const auto reused = load_block_proposer(test::golden(kDraft), golden_target());
  const auto fresh = load_block_proposer(test::golden(kDraft), golden_target());
  reused->start(first, features_of(first, *reused));
  EXPECT_FALSE(reused->propose(2, 4, true, likeliest).tokens.empty());
  std::vector<int64_t> text = second;
  for (const int64_t id : text_of(9, 6)) text.push_back(id);
  const at::Tensor tapped = features_of(text, *fresh);
  const auto length = static_cast<int64_t>(second.size());
  reused->start(second, tapped.slice(0, 0, length));
  for (int64_t i = length; i < static_cast<int64_t>(text.size()); i += 3) {  // committed without a proposal
    reused->advance({text.begin() + i, text.begin() + i + 3}, tapped.slice(0, i, i + 3));
  }
  fresh->start(text, tapped);
  const Proposal a = reused->propose(8, 4, false, likeliest), b = fresh->propose(8, 4, false, likeliest);
  EXPECT_FALSE(a.tokens.empty());
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_TRUE(test::close(a.probabilities, b.probabilities, 1e-5, 1e-4));
}

TEST(DraftReports, Report112TablesOfTheTargetMayLieInTheFolderOrNot) {
  const auto target = golden_target();
  const test::TemporaryFolder folder;
  const DraftFolder draft = read_draft(test::golden(kDraft), at::kFloat, *target);
  write_draft(folder.path() / "with", draft, at::kFloat, target.get());
  write_draft(folder.path() / "without", draft, at::kFloat, nullptr);
  const auto names = [&](const char* which) { return formats::open_safetensors(folder.path() / which)->names(); };
  EXPECT_THAT(names("with"), ::testing::IsSupersetOf({"embed_tokens.weight", "lm_head.weight"}));
  std::vector<std::string> listed;
  for (const auto& [name, shape] : parameter_shapes(draft.config)) listed.push_back(name);
  EXPECT_EQ(names("without"), listed);
  const std::vector<int64_t> text = text_of(24, 2);
  std::vector<Proposal> proposals;
  for (const char* which : {"with", "without"}) {
    const auto proposer = load_block_proposer(folder.path() / which, target);
    proposer->start(text, features_of(text, *proposer));
    proposals.push_back(proposer->propose(3, 4, false, likeliest));
  }
  EXPECT_EQ(proposals[0].tokens, proposals[1].tokens);
  EXPECT_TRUE(test::same_bits(proposals[0].probabilities, proposals[1].probabilities));
  // Another width is said before any tensor is looked at.
  Json config = read_json(folder.path() / "without/config.json");
  const int64_t hidden = config.at("hidden_size");
  config["hidden_size"] = hidden + 8;
  for (const char* which : {"with", "without"}) {
    write_file(folder.path() / which / "config.json", config.dump());
    try {
      load_block_proposer(folder.path() / which, target);
      ADD_FAILURE() << which << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format);
      EXPECT_THAT(error.what(), HasSubstr("the draft's hidden_size is " + std::to_string(hidden + 8) +
                                          ", the target's " + std::to_string(hidden)));
    }
  }
}

}  // namespace
}  // namespace pacer::draft
