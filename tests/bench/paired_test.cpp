#include "pacer/bench/paired.h"

#include <numeric>

#include <gtest/gtest.h>

namespace pacer::bench {
namespace {

std::vector<double> one_to(size_t count) {
  std::vector<double> values(count);
  std::iota(values.rbegin(), values.rend(), 1.0);
  return values;
}

// Places of the interval as tables of the sign test list them (n: rank of the lower end at 95 %).
TEST(MedianInterval, HasTheRanksOfTheSignTest) {
  for (const auto& [count, low] :
       {std::pair<size_t, double>{6, 1}, {8, 1}, {9, 2}, {12, 3}, {20, 6}, {25, 8}, {40, 14}}) {
    const MedianInterval interval = median_interval(one_to(count));
    EXPECT_EQ(interval.low, low) << count;
    EXPECT_EQ(interval.high, static_cast<double>(count) + 1 - low) << count;
    EXPECT_EQ(interval.median, 0.5 * static_cast<double>(count + 1)) << count;
  }
}

TEST(MedianInterval, FewValuesGiveTheirRange) {
  const MedianInterval interval = median_interval({3, 1, 2});
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.median, 2);
  EXPECT_EQ(interval.high, 3);
}

}  // namespace
}  // namespace pacer::bench
