#include <limits>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/nearest.h"
#include "pacer/base/numbers.h"

namespace pacer {
namespace {

TEST(EditDistance, TextbookExamples) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

RC_GTEST_PROP(EditDistance, IsAMetric, ()) {
  const auto word = rc::gen::container<std::string>(rc::gen::inRange('a', 'd'));
  const std::string a = *word, b = *word, c = *word;
  RC_ASSERT((edit_distance(a, b) == 0) == (a == b));
  RC_ASSERT(edit_distance(a, b) == edit_distance(b, a));
  RC_ASSERT(edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c));
}

TEST(Nearest, OrdersByDistanceThenAsGiven) {
  const std::vector<std::string> known = {"steps", "epochs", "step_limit", "stops"};
  EXPECT_EQ(nearest("stepz", known, 2), (std::vector<std::string>{"steps", "stops"}));
  EXPECT_EQ(nearest("x", {"b", "a"}, 5), (std::vector<std::string>{"b", "a"}));
  EXPECT_EQ(quoted_list({"a", "b"}), "'a', 'b'");
}

TEST(Nearest, ASuggestionIsCloseOrAbsent) {
  const std::vector<std::string> known = {"learning_rate", "weight_decay"};
  EXPECT_EQ(did_you_mean("learning_rte", known), "learning_rate");
  EXPECT_EQ(did_you_mean("momentum", known), "");
  EXPECT_EQ(did_you_mean("--otu", {"--out"}), "--out") << "two letters changed places";
  EXPECT_EQ(did_you_mean("abc", {"xyc"}), "");
  EXPECT_EQ(did_you_mean("x", {}), "");
}

TEST(Numbers, CountsBytesAndPercentages) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(-123), "-123");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(98362432), "98.4 MB");
  EXPECT_EQ(format_bytes(999999), "1.00 MB") << "not 1000 kB";
  EXPECT_EQ(format_bytes(std::numeric_limits<uint64_t>::max()), "18.4 EB");
  EXPECT_EQ(format_percent(0), "0 %");
  EXPECT_EQ(format_percent(0.034), "3.4 %");
  EXPECT_EQ(format_percent(0.4567), "46 %");
  EXPECT_EQ(format_fixed(2.789, 2), "2.79");
  EXPECT_EQ(format_fixed(std::numeric_limits<double>::quiet_NaN(), 2), "nan");
}

TEST(Numbers, DurationsGrowFromFractionsToHours) {
  EXPECT_EQ(format_duration(0.254), "0.25 s");
  EXPECT_EQ(format_duration(3.14), "3.1 s");
  EXPECT_EQ(format_duration(59.4), "59 s");
  EXPECT_EQ(format_duration(59.6), "1 min 00 s") << "not 60 s";
  EXPECT_EQ(format_duration(185), "3 min 05 s");
  EXPECT_EQ(format_duration(3599.7), "1 h 00 min") << "not 60 min";
  EXPECT_EQ(format_duration(7620), "2 h 07 min");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::infinity()), "inf s");
}

}  // namespace
}  // namespace pacer
