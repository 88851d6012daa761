#include "pacer/data/packing.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "pacer/data/rows.h"

namespace pacer::data {
namespace {

using ::testing::ElementsAre;
using Batch = std::vector<int64_t>;

TEST(PackRows, ClosesABatchBeforeALimitIsBroken) {
  const std::vector<int64_t> lengths = {4, 3, 3, 10, 1, 1, 1}, order = {0, 1, 2, 3, 4, 5, 6};
  EXPECT_THAT(pack_rows(lengths, order, {.tokens = 10}), ElementsAre(Batch{0, 1, 2}, Batch{3}, Batch{4, 5, 6}));
  EXPECT_THAT(pack_rows(lengths, order, {.tokens = 10, .rows = 2}),
              ElementsAre(Batch{0, 1}, Batch{2}, Batch{3}, Batch{4, 5}, Batch{6}));
}

TEST(PackRows, FollowsTheGivenOrder) {
  EXPECT_THAT(pack_rows(std::vector<int64_t>{5, 6, 5}, std::vector<int64_t>{2, 0, 1}, {.tokens = 10}),
              ElementsAre(Batch{2, 0}, Batch{1}));
  EXPECT_TRUE(pack_rows({}, {}, {.tokens = 10}).empty());
}

TEST(PackRows, NamesARowThatFitsNowhereAndRefusesEmptyLimits) {
  const std::vector<int64_t> lengths = {4, 11}, order = {0, 1};
  try {
    pack_rows(lengths, order, {.tokens = 10});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "row 1 has 11 tokens, a micro-batch holds 10");
  }
  EXPECT_THROW(pack_rows(lengths, order, {.tokens = 0}), Error);
  EXPECT_THROW(pack_rows(lengths, order, {.tokens = 20, .rows = -1}), Error);
  EXPECT_THROW(pack_rows(lengths, std::vector<int64_t>{2}, {.tokens = 20}), Error);
}

// Nothing is lost, doubled or moved, no limit is broken, and no batch could have taken the row behind it.
RC_GTEST_PROP(PackRowsProperties, EveryRowOnceInOrderAndBatchesAreFull, ()) {
  const auto count = *rc::gen::inRange<int64_t>(0, 60);
  const auto lengths =
      *rc::gen::container<std::vector<int64_t>>(static_cast<size_t>(count), rc::gen::inRange<int64_t>(1, 50));
  const PackLimits limits{.tokens = *rc::gen::inRange<int64_t>(50, 120), .rows = *rc::gen::inRange<int64_t>(0, 5)};
  const auto order = epoch_order(*rc::gen::inRange<uint64_t>(0, 9), 1, count);
  const auto batches = pack_rows(lengths, order, limits);
  Batch joined;
  for (size_t i = 0; i < batches.size(); ++i) {
    RC_ASSERT(!batches[i].empty());
    int64_t tokens = 0;
    for (const int64_t row : batches[i]) tokens += lengths[static_cast<size_t>(row)];
    const bool rows_full = limits.rows > 0 && static_cast<int64_t>(batches[i].size()) == limits.rows;
    RC_ASSERT(tokens <= limits.tokens);
    RC_ASSERT(limits.rows == 0 || static_cast<int64_t>(batches[i].size()) <= limits.rows);
    if (i + 1 < batches.size()) {
      RC_ASSERT(rows_full || tokens + lengths[static_cast<size_t>(batches[i + 1].front())] > limits.tokens);
    }
    joined.insert(joined.end(), batches[i].begin(), batches[i].end());
  }
  RC_ASSERT(joined == order);
}

}  // namespace
}  // namespace pacer::data
