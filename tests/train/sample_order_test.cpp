#include "pacer/train/sample_order.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/data/rows.h"

namespace pacer::train {
namespace {

std::vector<int64_t> rows_of(const Window& window) {
  std::vector<int64_t> rows;
  for (const auto& batch : window.micro_batches) rows.insert(rows.end(), batch.begin(), batch.end());
  return rows;
}

TEST(SampleOrder, RunsThroughEveryRowOfAnEpochOnceAndOnIntoTheNext) {
  constexpr int64_t kRows = 10;
  const SampleOrder order(5, kRows, 2, 2);  // 4 rows a step, so the third step crosses into the second epoch
  std::vector<int64_t> sequence;
  for (int64_t step = 1; step <= 5; ++step) {
    for (const int64_t row : rows_of(order.window(step))) sequence.push_back(row);
  }
  std::vector<int64_t> expected = data::epoch_order(5, 0, kRows);
  for (const int64_t row : data::epoch_order(5, 1, kRows)) expected.push_back(row);
  EXPECT_EQ(sequence, expected);
  std::map<int64_t, int> times;
  for (const int64_t row : sequence) ++times[row];
  for (const auto& [row, count] : times) EXPECT_EQ(count, 2) << row;
}

TEST(SampleOrder, AStepIsTheSameWhicheverOrderStepsAreAskedIn) {
  const SampleOrder order(7, 13, 3, 2);
  const auto forward = rows_of(order.window(9));
  order.window(1);
  EXPECT_EQ(rows_of(order.window(9)), forward);
  EXPECT_EQ(rows_of(SampleOrder(7, 13, 3, 2).window(9)), forward);
  EXPECT_NE(rows_of(SampleOrder(8, 13, 3, 2).window(9)), forward);
}

TEST(SampleOrder, MicroBatchesDivideTheSameRows) {
  const Window whole = SampleOrder(1, 20, 6, 1).window(2), parts = SampleOrder(1, 20, 2, 3).window(2);
  EXPECT_EQ(whole.micro_batches.size(), 1u);
  EXPECT_EQ(parts.micro_batches.size(), 3u);
  EXPECT_EQ(rows_of(whole), rows_of(parts));
}

TEST(SampleOrder, EndsWhereTheRunEnds) {
  const SampleOrder order(1, 7, 2, 2, /*end=*/7);
  EXPECT_EQ(rows_of(order.window(1)).size(), 4u);
  const Window last = order.window(2);
  EXPECT_EQ(last.micro_batches.size(), 2u);
  EXPECT_EQ(last.micro_batches[1].size(), 1u);
  EXPECT_EQ(last.end, 7);
  EXPECT_TRUE(order.window(3).micro_batches.empty());
  EXPECT_DOUBLE_EQ(order.epochs(7), 1.0);
}

}  // namespace
}  // namespace pacer::train
