// How a block of activations is scaled: the part that every set of quantised kernels shares. Everything is local to the
// file that includes it, so that code for one processor is never linked into another.
#pragma once

#include <cstdint>
#include <cstring>

#include "pacer/nn/quant_kernels.h"

namespace pacer::nn {
namespace {

// As whole numbers the magnitudes of floats are ordered, infinity above all numbers and NaN above that.
[[maybe_unused]] inline uint32_t magnitude_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits & 0x7fffffffu;
}

struct BlockScale {
  float scale, inverse;  // inverse 0: all values are zero
};

// steps: 127 for bytes, 32512 for words.
[[maybe_unused]] inline BlockScale block_scale(uint32_t largest_bits, float steps) {
  if (largest_bits >= 0x7f800000u) return {__builtin_nanf(""), 0.0f};
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  if (largest < 1e-30f) return {0.0f, 0.0f};  // its inverse would overflow
  return {largest / steps, steps / largest};
}

[[maybe_unused]] inline float steps_of(const RoundedRow& row) { return row.fine == nullptr ? 127.0f : 32512.0f; }

// n as one byte or two; returns what was kept of it.
[[maybe_unused]] inline int32_t write_value(const RoundedRow& row, int64_t at, int32_t n) {
  if (row.fine == nullptr) {
    row.values[at] = static_cast<int8_t>(n);
    return n;
  }
  const int32_t high = (n + 128) >> 8, rest = n - 256 * high;
  // A sign cannot be turned at -128 (quant_kernels_avx2.cpp).
  const int32_t low = rest < -127 ? -127 : rest;
  row.values[at] = static_cast<int8_t>(high);
  row.fine[at] = static_cast<int8_t>(low);
  return 256 * high + low;
}

[[maybe_unused]] inline void write_block(const RoundedRow& row, int64_t block, float scale, int32_t sum) {
  row.scales[block] = scale;
  row.scaled_sums[block] = scale * static_cast<float>(sum);
  row.minus_8[block] = -8 * sum;
  row.minus_128[block] = -128 * sum;
}

}  // namespace
}  // namespace pacer::nn
