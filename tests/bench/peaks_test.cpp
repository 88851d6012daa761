#include "pacer/bench/peaks.h"

#include <vector>

#include <gtest/gtest.h>

#include "pacer/nn/kernel_choice.h"

namespace pacer::bench {
namespace {

TEST(Peaks, AreThereWhereTheProcessorHasTheInstruction) {
  EXPECT_EQ(peak("f32").has_value(), nn::has_avx2());
  EXPECT_EQ(peak("bf16").has_value(), nn::has_avx512_bf16());
  EXPECT_EQ(peak("int8").has_value(), nn::has_avx512_vnni());
  EXPECT_FALSE(peak("f64").has_value());
  for (const char* type : {"f32", "bf16", "int8"}) {
    const auto found = peak(type);
    if (!found) continue;
    EXPECT_GT(found->operations, 1e9) << type;
    found->run();
  }
}

TEST(Peaks, ReadingTouchesEveryValue) {
  const ReadAll read = read_all();
  if (read == nullptr) GTEST_SKIP() << "reading ahead is not written for this processor";
  std::vector<float> values(128 * 37);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 7);
  float expected = 0;
  for (const float value : values) expected += value;  // whole numbers: exact in any order
  EXPECT_EQ(read(values.data(), static_cast<int64_t>(values.size())), expected);
}

}  // namespace
}  // namespace pacer::bench
