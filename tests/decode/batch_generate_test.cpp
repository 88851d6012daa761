#include "pacer/decode/batch_generate.h"

#include <algorithm>
#include <map>
#include <string>

#include <ATen/ops/logsumexp.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/device/runtime.h"
#include "pacer/target/exact_rows.h"
#include "tests/decode/toy.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::decode {
namespace {

constexpr int64_t kVocab = 12;

const test::ToyTarget& toy_target() {
  static const test::ToyTarget target(kVocab, 3, 1.0);
  return target;
}

// Prompts of different lengths behind a common beginning.
std::vector<BatchRequest> requests(size_t count, int64_t shared = 0, uint64_t most = 40) {
  const RandomStream random(6, Purpose::test);
  std::vector<BatchRequest> made;
  for (size_t i = 0; i < count; ++i) {
    BatchRequest request{1000 + i, {}};
    for (int64_t t = 0; t < shared; ++t)
      request.prompt.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(t), kVocab)));
    const uint64_t length = 1 + random.below(500 + i, most);
    for (uint64_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<int64_t>((i + random.below(1000 + 50 * i + t, kVocab)) % kVocab));
    }
    made.push_back(std::move(request));
  }
  return made;
}

BatchOptions options_of(double temperature, int64_t sequences) {
  BatchOptions options;
  options.sampling.temperature = temperature;
  options.sampling.max_new_tokens = 25;
  options.sampling.stop_ids = {4};
  options.sampling.seed = 5;
  options.sequences = sequences;
  return options;
}

std::map<size_t, std::pair<std::vector<int64_t>, Finish>> texts(const std::vector<BatchRequest>& asked,
                                                                const BatchOptions& options) {
  std::map<size_t, std::pair<std::vector<int64_t>, Finish>> made;
  generate_batch(toy_target(), asked, options, [&](const BatchResult& result) {
    EXPECT_FALSE(made.contains(result.request));
    made[result.request] = {result.tokens, result.finish};
    return true;
  });
  return made;
}

TEST(GenerateBatch, WritesWhatPlainDecodingWritesWhateverTheBatch) {
  for (const int64_t shared : {0, 20}) {
    const std::vector<BatchRequest> asked = requests(30, shared);
    for (const double temperature : {0.0, 0.8}) {
      for (const int64_t sequences : {1, 4, 64}) {
        const BatchOptions options = options_of(temperature, sequences);
        const auto made = texts(asked, options);
        ASSERT_EQ(made.size(), asked.size());
        for (size_t i = 0; i < asked.size(); ++i) {
          DecodeOptions single;
          single.sampling = options.sampling;
          single.sample = asked[i].sample;
          const Decoded plain = decode_plain(toy_target(), asked[i].prompt, single);
          EXPECT_EQ(made.at(i).first, plain.tokens) << i;
          EXPECT_EQ(made.at(i).second, plain.finish) << i;
        }
      }
    }
  }
}

TEST(GenerateBatch, ComputesASharedBeginningOnce) {
  const std::vector<BatchRequest> asked = requests(10, 20);
  const BatchStatistics statistics =
      generate_batch(toy_target(), asked, options_of(0.0, 4), [](const BatchResult&) { return true; });
  EXPECT_GE(statistics.shared_prefix, 20);
  EXPECT_EQ(statistics.computed_prompt_tokens,
            statistics.prompt_tokens - statistics.shared_prefix * static_cast<int64_t>(asked.size() - 1));
}

TEST(GenerateBatch, FillsTheBatchAndRunsPromptsTogether) {
  const test::ToyTarget target(kVocab, 3, 1.0);
  BatchOptions options = options_of(0.0, 8);
  options.sampling.stop_ids = {};
  constexpr auto kPiece = static_cast<size_t>(target::kExactRows);
  const std::vector<BatchRequest> asked = requests(16, 0, 3 * kPiece);
  const BatchStatistics statistics = generate_batch(target, asked, options, [](const BatchResult&) { return true; });
  EXPECT_EQ(statistics.steps, 2 * 24);  // all texts have the same length: two full batches
  size_t pieces = 0;                    // prompts of a batch run side by side, a piece of each per pass
  for (const size_t first : {0, 8}) {
    size_t longest = 0;
    for (size_t i = first; i < first + 8; ++i) longest = std::max(longest, asked[i].prompt.size());
    pieces += (longest + kPiece - 1) / kPiece;
  }
  EXPECT_EQ(target.forwards, 2 * 24 + static_cast<int64_t>(pieces));
  EXPECT_EQ(statistics.new_tokens, 16 * 25);
  EXPECT_EQ(statistics.texts, 16);
}

TEST(GenerateBatch, ARealTargetWritesTheSameTextAloneAndInABatch) {
  auto runtime = device::Runtime::open("cpu");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto target = target::Target::load(test::golden("dspark/target"), dtype, runtime);
    for (const double temperature : {0.0, 1.0}) {
      BatchOptions options = options_of(temperature, 16);
      options.sampling.stop_ids = {};
      const std::vector<BatchRequest> asked = requests(16, 12);
      generate_batch(*target, asked, options, [&](const BatchResult& result) {
        DecodeOptions single;
        single.sampling = options.sampling;
        single.sample = asked[result.request].sample;
        EXPECT_EQ(result.tokens, decode_plain(*target, asked[result.request].prompt, single).tokens)
            << toString(dtype) << " " << temperature << " " << result.request;
        return true;
      });
    }
  }
}

TEST(GenerateBatch, HandsOverTheStatesThatTheTextsWereMadeFrom) {
  auto runtime = device::Runtime::open("cpu");
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const auto target = target::Target::load(test::golden("dspark/target"), dtype, runtime);
    BatchOptions options = options_of(0.0, 5);
    options.keep_states = true;
    options.taps = {0, 2};
    for (const int64_t shared : {0, 20}) {
      const std::vector<BatchRequest> asked = requests(12, shared);
      int64_t handed = 0;
      generate_batch(*target, asked, options, [&](const BatchResult& result) {
        std::vector<int64_t> ids = asked[result.request].prompt;
        ids.insert(ids.end(), result.tokens.begin(), result.tokens.end() - 1);
        const target::TargetOutput alone = forward_exact(*target, {ids}, options.taps);
        EXPECT_TRUE(pacer::test::same_bits(result.states.tapped, alone.tapped)) << result.request;
        EXPECT_TRUE(pacer::test::same_bits(result.states.last, alone.last)) << result.request;
        const auto tokens = static_cast<int64_t>(result.tokens.size());
        const at::Tensor choosing = alone.last.slice(0, alone.last.size(0) - tokens);
        const at::Tensor sums = target::exact_log_sums(*target, choosing);
        EXPECT_EQ(std::vector<float>(sums.const_data_ptr<float>(), sums.const_data_ptr<float>() + tokens),
                  result.log_sums);
        EXPECT_TRUE(pacer::test::close(sums, at::logsumexp(target->logits(choosing), {1}), 1e-6, 1e-6));
        ++handed;
        return true;
      });
      EXPECT_EQ(handed, 12);
    }
  }
}

TEST(GenerateBatch, StopsWhenAsked) {
  int handed = 0;
  const BatchStatistics statistics =
      generate_batch(toy_target(), requests(30), options_of(0.8, 4), [&](const BatchResult&) { return ++handed < 5; });
  EXPECT_EQ(handed, 5);
  EXPECT_TRUE(statistics.stopped);
}

TEST(GenerateBatch, TheLastPromptTokenIsNeverPartOfTheSharedBeginning) {
  EXPECT_EQ(common_prefix({{0, {1, 2, 3}}, {1, {1, 2, 3}}}), 2);
  EXPECT_EQ(common_prefix({{0, {1, 2, 3}}, {1, {1, 2, 4, 5}}}), 2);
  EXPECT_EQ(common_prefix({{0, {1}}, {1, {1, 2}}}), 0);
  EXPECT_EQ(common_prefix({}), 0);
}

TEST(GenerateBatch, RefusesAPromptThatLeavesNoRoom) {
  std::vector<BatchRequest> asked = requests(3);
  asked[1].prompt.assign(5000, 1);
  try {
    generate_batch(toy_target(), asked, options_of(0.0, 4), [](const BatchResult&) { return true; });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("prompt 2 "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace pacer::decode
