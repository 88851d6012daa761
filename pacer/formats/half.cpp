#include "pacer/formats/half.h"

#include <cmath>
#include <cstring>
#include <string>

#include "pacer/base/error.h"

namespace pacer::formats {
namespace {

// A format with one sign bit, `exponent_bits` and `mantissa_bits`; IEEE when the top exponent is kept for infinity and
// NaN, otherwise ("finite") only the all-ones pattern is NaN.
struct Layout {
  int exponent_bits, mantissa_bits;
  bool ieee;
};

constexpr Layout kHalf{5, 10, true}, kE4M3{4, 3, false}, kE5M2{5, 2, true};

uint32_t encode(float value, Layout layout) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const int width = 1 + layout.exponent_bits + layout.mantissa_bits;
  const uint32_t sign = (bits >> 31) << (width - 1);
  const uint32_t top = (1u << (width - 1)) - 1;  // all ones below the sign
  const uint32_t infinity = ((1u << layout.exponent_bits) - 1) << layout.mantissa_bits;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | (layout.ieee ? infinity | (1u << (layout.mantissa_bits - 1)) : top);
  if (std::isinf(value)) return sign | (layout.ieee ? infinity : top);

  // Values become integers in units of the last place, so that the current rounding mode (nearest even) does the work.
  // A carry into the next power of two moves on to the next exponent by itself.
  const int bias = (1 << (layout.exponent_bits - 1)) - 1;
  const int least = 1 - bias;  // exponent of the smallest normal value, and of all subnormals
  const int exponent = magnitude == 0 ? least : std::max(least, std::ilogb(magnitude));
  const double units = std::nearbyint(std::ldexp(static_cast<double>(magnitude), layout.mantissa_bits - exponent));
  const auto code = static_cast<uint32_t>(units) + (static_cast<uint32_t>(exponent - least) << layout.mantissa_bits);
  const uint32_t overflow = layout.ieee ? infinity : top;
  return sign | std::min(code, overflow);
}

float decode(uint32_t code, Layout layout) {
  const int width = 1 + layout.exponent_bits + layout.mantissa_bits;
  const bool negative = (code >> (width - 1)) != 0;
  const uint32_t mantissa = code & ((1u << layout.mantissa_bits) - 1);
  const uint32_t exponent = (code >> layout.mantissa_bits) & ((1u << layout.exponent_bits) - 1);
  const uint32_t highest = (1u << layout.exponent_bits) - 1;
  float value;
  if (exponent == highest && layout.ieee) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == highest && mantissa == (1u << layout.mantissa_bits) - 1) {
    value = NAN;
  } else {
    const int bias = (1 << (layout.exponent_bits - 1)) - 1;
    const uint32_t significand = exponent == 0 ? mantissa : mantissa | (1u << layout.mantissa_bits);
    value = std::ldexp(static_cast<float>(significand),
                       static_cast<int>(std::max(exponent, 1u)) - bias - layout.mantissa_bits);
  }
  return std::copysign(value, negative ? -1.0f : 1.0f);
}

template <typename Raw, typename Convert>
void read_each(std::span<const std::byte> bytes, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) {
    Raw raw;
    std::memcpy(&raw, bytes.data() + i * sizeof(Raw), sizeof(Raw));
    out[i] = convert(raw);
  }
}

template <typename Convert>
void write_each(std::span<const float> values, std::span<std::byte> out, Convert convert) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto raw = convert(values[i]);
    std::memcpy(out.data() + i * sizeof(raw), &raw, sizeof(raw));
  }
}

void check_sizes(DType dtype, size_t bytes, size_t values) {
  if (bytes == values * item_size(dtype)) return;
  throw Error(ErrorKind::bug, "conversion of " + std::to_string(values) + " values: a buffer of " +
                                  std::to_string(bytes) + " bytes for " + std::string(dtype_name(dtype)));
}

[[noreturn]] void not_a_float(DType dtype) {
  throw Error(ErrorKind::format,
              "a weight of type " + std::string(dtype_name(dtype)) + ", which is no floating-point type",
              "weights are F32, F16, BF16 or an 8-bit float");
}

}  // namespace

// The usual magnitudes go through integer arithmetic; the slow general path only sees subnormal and extreme values.
uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7FFFFFFFu;
  if (magnitude < 0x38800000u || magnitude >= 0x477FF000u) return static_cast<uint16_t>(encode(value, kHalf));
  const uint32_t rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | (rounded >> 13));
}

float f8_e4m3_to_f32(uint8_t value) { return decode(value, kE4M3); }
float f8_e5m2_to_f32(uint8_t value) { return decode(value, kE5M2); }
uint8_t f32_to_f8_e4m3(float value) { return static_cast<uint8_t>(encode(value, kE4M3)); }
uint8_t f32_to_f8_e5m2(float value) { return static_cast<uint8_t>(encode(value, kE5M2)); }

void to_f32(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  check_sizes(dtype, bytes.size(), out.size());
  switch (dtype) {
    case DType::F32:
      if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
      return;
    case DType::F64:
      return read_each<double>(bytes, out, [](double value) { return static_cast<float>(value); });
    case DType::F16:
      return read_each<uint16_t>(bytes, out, f16_to_f32);
    case DType::BF16:
      return read_each<uint16_t>(bytes, out, bf16_to_f32);
    case DType::F8_E4M3:
      return read_each<uint8_t>(bytes, out, f8_e4m3_to_f32);
    case DType::F8_E5M2:
      return read_each<uint8_t>(bytes, out, f8_e5m2_to_f32);
    default:
      not_a_float(dtype);
  }
}

void from_f32(std::span<const float> values, DType dtype, std::span<std::byte> out) {
  check_sizes(dtype, out.size(), values.size());
  switch (dtype) {
    case DType::F32:
      if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
      return;
    case DType::F16:
      return write_each(values, out, f32_to_f16);
    case DType::BF16:
      return write_each(values, out, f32_to_bf16);
    case DType::F8_E4M3:
      return write_each(values, out, f32_to_f8_e4m3);
    case DType::F8_E5M2:
      return write_each(values, out, f32_to_f8_e5m2);
    default:
      not_a_float(dtype);
  }
}

}  // namespace pacer::formats
