#include "pacer/train/values.h"

#include <gtest/gtest.h>

namespace pacer::train {
namespace {

TEST(RecipeNumbers, AreWhatAPersonWrites) {
  EXPECT_EQ(parse_number("3e-4"), 3e-4);  // YAML 1.1 calls this a text
  EXPECT_EQ(parse_number("3E-4"), 3e-4);
  EXPECT_EQ(parse_number("+.5"), 0.5);
  EXPECT_EQ(parse_number("5."), 5.0);
  EXPECT_EQ(parse_number("-2.5e+3"), -2500.0);
  EXPECT_EQ(parse_number("1_000.000_5"), 1000.0005);
  EXPECT_EQ(parse_whole("1_000"), 1000);
  EXPECT_EQ(parse_whole("1e3"), 1000);
  EXPECT_EQ(parse_whole("-7"), -7);
  EXPECT_EQ(parse_whole("9223372036854775807"), INT64_MAX);
}

TEST(RecipeNumbers, RefuseEverythingElse) {
  for (const char* text : {"", "e5", "1e", "1__0", "_1", "1_", "0x10", "nan", ".inf", "inf", "1 ", "1,5", "--1", ".",
                           "1e999", "1.2.3", "12a", "1e5_"}) {
    EXPECT_FALSE(parse_number(text)) << text;
    EXPECT_FALSE(parse_whole(text)) << text;
  }
  EXPECT_FALSE(parse_whole("2.5"));
  EXPECT_FALSE(parse_whole("1e-3"));
  EXPECT_FALSE(parse_whole("9223372036854775808"));
  EXPECT_FALSE(parse_whole("1e17"));  // beyond what an f64 holds exactly
}

}  // namespace
}  // namespace pacer::train
