#include "pacer/data/rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer::data {
namespace {

std::filesystem::path write(const test::TemporaryFolder& folder, const std::string& text) {
  const auto path = folder.path() / "rows.jsonl";
  std::ofstream(path) << text;
  return path;
}

constexpr RowOptions kSmall{.max_length = 8, .minimum_supervised = 2, .vocab_size = 100};

TEST(ReadRows, SupervisesTheAnswerAndNothingElse) {
  const test::TemporaryFolder folder;
  const Rows rows = read_rows(
      write(folder, R"({"id": "a", "prompt_ids": [1, 2, 3], "output_ids": [4, 5], "finish_reason": "stop"})"), kSmall);
  ASSERT_EQ(rows.rows.size(), 1u);
  EXPECT_EQ(rows.rows[0].ids, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(rows.rows[0].supervised, (std::vector<uint8_t>{0, 0, 0, 1, 1}));
}

TEST(ReadRows, CountsWhatItDropsByReasonAndLine) {
  const test::TemporaryFolder folder;
  const Rows rows = read_rows(write(folder, R"({"id": "a", "prompt_ids": [1], "output_ids": [4, 5]}
not json

{"id": "b", "prompt_ids": [1], "output_ids": [4]}
{"id": "c", "prompt_ids": [1], "output_ids": [4, 100]}
{"id": "d", "output_ids": [4, 5]}
{"id": "a", "prompt_ids": [1], "output_ids": [6, 7]}
{"id": "e", "prompt_ids": [1, 2, 3, 4, 5, 6, 7], "output_ids": [8, 9]}
{"id": "f", "prompt_ids": [1], "output_ids": [4, 5.5]}
)"),
                              kSmall);
  EXPECT_EQ(rows.rows.size(), 1u);
  const auto lines = [&](const std::string& reason) { return rows.problems.lines_by_reason.at(reason); };
  EXPECT_EQ(lines("not JSON"), std::vector<int64_t>{2});
  // Line 8 is cut to eight tokens, which leaves a single supervised one.
  EXPECT_EQ(lines("fewer than 2 answer tokens in a row"), (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(lines("token id outside the vocabulary"), std::vector<int64_t>{5});
  EXPECT_EQ(lines("no list prompt_ids"), std::vector<int64_t>{6});
  EXPECT_EQ(lines("an id that occurred before"), std::vector<int64_t>{7});
  EXPECT_EQ(lines("output_ids holds something that is not an integer"), std::vector<int64_t>{9});
  EXPECT_EQ(rows.problems.dropped(), 7);
}

TEST(ReadRows, AFileWithoutAGoodRowIsAnErrorThatSaysWhy) {
  const test::TemporaryFolder folder;
  try {
    read_rows(write(folder, "{\"prompt_ids\": [1], \"output_ids\": []}\n"), kSmall);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("fewer than 2 answer tokens in a row: 1 (first in line 1)"),
              std::string::npos)
        << error.what();
  }
}

TEST(ReadRows, TheFingerprintFollowsTheTokens) {
  const test::TemporaryFolder folder;
  const auto fingerprint = [&](const std::string& text) { return read_rows(write(folder, text), kSmall).fingerprint; };
  const auto base = fingerprint(R"({"prompt_ids": [1], "output_ids": [4, 5], "text": "x"})");
  EXPECT_EQ(base, fingerprint(R"({"prompt_ids": [1], "output_ids": [4, 5], "text": "y"})"));
  EXPECT_NE(base, fingerprint(R"({"prompt_ids": [1], "output_ids": [4, 6], "text": "x"})"));
  EXPECT_NE(base, fingerprint(R"({"prompt_ids": [1, 4], "output_ids": [4, 5], "text": "x"})"));
}

TEST(EpochOrder, IsAPermutationOfItsOwnForEveryEpoch) {
  for (const int64_t count : {0, 1, 2, 97}) {
    const auto order = epoch_order(3, 0, count);
    const std::set<int64_t> distinct(order.begin(), order.end());
    EXPECT_EQ(static_cast<int64_t>(distinct.size()), count);
    if (count > 0) {
      EXPECT_EQ(*distinct.rbegin(), count - 1);
    }
  }
  EXPECT_EQ(epoch_order(3, 1, 97), epoch_order(3, 1, 97));
  EXPECT_NE(epoch_order(3, 1, 97), epoch_order(3, 2, 97));
  EXPECT_NE(epoch_order(3, 1, 97), epoch_order(4, 1, 97));
}

TEST(EpochOrder, PutsEveryElementAtEveryPlaceEquallyOften) {
  // 4 elements, 24,000 epochs: each of the 24 orders 1,000 times, standard deviation 31.
  std::map<std::vector<int64_t>, int> seen;
  for (uint64_t epoch = 0; epoch < 24'000; ++epoch) ++seen[epoch_order(11, epoch, 4)];
  ASSERT_EQ(seen.size(), 24u);
  for (const auto& [order, times] : seen) EXPECT_NEAR(times, 1000, 160);
}

}  // namespace
}  // namespace pacer::data
