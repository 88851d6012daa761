// Narrow floating-point formats without torch: IEEE half, bfloat16 and the two 8-bit formats (Micikevicius et al.
// 2022).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pacer/formats/dtype.h"

namespace pacer::formats {

inline float bf16_to_f32(uint16_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value) << 16); }

// Round to nearest, ties to even; NaN stays NaN.
inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

// Exact, subnormals included. Shifting a half's exponent and mantissa into place leaves an exponent that is too small
// by 112; multiplying by 2^112 corrects it for normal and subnormal values alike.
inline float f16_to_f32(uint16_t value) {
  const uint32_t shifted = static_cast<uint32_t>(value & 0x7FFFu) << 13;
  const float magnitude = shifted >= 0x0F800000u ? std::bit_cast<float>(shifted | 0x7F800000u)  // infinity or NaN
                                                 : std::bit_cast<float>(shifted) * std::bit_cast<float>(0x77800000u);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | (static_cast<uint32_t>(value & 0x8000u) << 16));
}

uint16_t f32_to_f16(float value);     // round to nearest, ties to even; beyond 65504 + half a unit: infinity
float f8_e4m3_to_f32(uint8_t value);  // no infinities; 0x7F and 0xFF are NaN
float f8_e5m2_to_f32(uint8_t value);  // IEEE-like
uint8_t f32_to_f8_e4m3(float value);  // round to nearest, ties to even; beyond 448 + half a unit: NaN
uint8_t f32_to_f8_e5m2(float value);  // round to nearest, ties to even; overflow gives infinity

// bytes: elements of a floating-point dtype. out: as many floats. F64 is rounded to the nearest float.
// Throws Error{bug} when the sizes differ and Error{format} for an integer dtype.
void to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> out);
// dtype: F32, F16, BF16 or one of the 8-bit formats; out: item_size(dtype) bytes per value.
void from_f32(std::span<const float> values, DType dtype, std::span<std::byte> out);

}  // namespace pacer::formats
