#include "pacer/formats/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/formats/tensor_source.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

// Every code of a format survives the way to f32 and back; NaN stays NaN.
template <typename Code, typename Decode, typename Encode>
void every_code_survives(Decode decode, Encode encode) {
  for (uint32_t code = 0; code <= std::numeric_limits<Code>::max(); ++code) {
    const float value = decode(static_cast<Code>(code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(decode(encode(value)))) << code;
    } else {
      ASSERT_EQ(encode(value), code) << value;
    }
  }
}

// Between two neighbouring finite values the nearer one wins, and the even code when both are equally near.
template <typename Code, typename Decode, typename Encode>
void rounds_to_nearest_even(Decode decode, Encode encode, Code last_finite) {
  for (uint32_t code = 0; code < last_finite; ++code) {
    const auto below = static_cast<Code>(code), above = static_cast<Code>(code + 1);
    const float low = decode(below), high = decode(above), middle = low + (high - low) / 2;
    ASSERT_EQ(encode(middle), code % 2 == 0 ? below : above) << "between " << low << " and " << high;
    ASSERT_EQ(encode(std::nextafter(middle, low)), below);
    ASSERT_EQ(encode(std::nextafter(middle, high)), above);
    ASSERT_EQ(decode(encode(-std::nextafter(middle, high))), -high);
  }
}

TEST(Half, EveryCodeSurvives) {
  every_code_survives<uint16_t>(f16_to_f32, f32_to_f16);
  every_code_survives<uint16_t>(bf16_to_f32, f32_to_bf16);
  every_code_survives<uint8_t>(f8_e4m3_to_f32, f32_to_f8_e4m3);
  every_code_survives<uint8_t>(f8_e5m2_to_f32, f32_to_f8_e5m2);
}

TEST(Half, RoundsToNearestEven) {
  rounds_to_nearest_even<uint16_t>(f16_to_f32, f32_to_f16, 0x7BFF);
  rounds_to_nearest_even<uint16_t>(bf16_to_f32, f32_to_bf16, 0x7F7F);
  rounds_to_nearest_even<uint8_t>(f8_e4m3_to_f32, f32_to_f8_e4m3, 0x7E);
  rounds_to_nearest_even<uint8_t>(f8_e5m2_to_f32, f32_to_f8_e5m2, 0x7B);
}

TEST(Half, KnowsTheEdgesOfTheFormats) {
  EXPECT_EQ(f16_to_f32(0x7BFF), 65504.0f);
  EXPECT_EQ(f16_to_f32(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(f8_e4m3_to_f32(0x7E), 448.0f);
  EXPECT_EQ(f8_e4m3_to_f32(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(f8_e5m2_to_f32(0x7B), 57344.0f);
  EXPECT_TRUE(std::isinf(f16_to_f32(f32_to_f16(65520.0f))));
  EXPECT_EQ(f16_to_f32(f32_to_f16(65519.0f)), 65504.0f);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(f32_to_f8_e4m3(480.0f))));
  EXPECT_TRUE(std::isinf(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_TRUE(std::signbit(f16_to_f32(f32_to_f16(-0.0f))));
}

TEST(Half, BufferConversionsAgreeWithTheSingleOnesAndCheckSizes) {
  const std::vector<float> values{0.1f, -3.25f, 1e-6f, 300.0f};
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::F8_E4M3, DType::F8_E5M2}) {
    std::vector<std::byte> bytes(values.size() * item_size(dtype));
    std::vector<float> back(values.size());
    from_f32(values, dtype, bytes);
    to_f32(dtype, bytes, back);
    const double relative = dtype == DType::F32 ? 0 : dtype == DType::F16 ? 5e-4 : dtype == DType::BF16 ? 4e-3 : 0.13;
    for (size_t i = 0; i < values.size(); ++i) {
      if (i == 2 && dtype != DType::F32 && dtype != DType::BF16) continue;  // below the normal range
      EXPECT_NEAR(back[i], values[i], relative * std::fabs(values[i])) << dtype_name(dtype);
    }
    EXPECT_THROW(from_f32(values, dtype, std::span(bytes).first(1)), Error);
  }
  std::vector<std::byte> integers(4 * 8);
  std::vector<float> out(4);
  EXPECT_THROW(to_f32(DType::I64, integers, out), Error);
}

}  // namespace
}  // namespace pacer::formats
