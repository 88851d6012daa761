// The quantised products in plain C++: what the other sets are tested against, to the bit.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "pacer/formats/half.h"
#include "pacer/nn/quant_kernel_sets.h"
#include "pacer/nn/quant_rounding.h"

namespace pacer::nn {
namespace {

float half_at(const std::byte* bytes, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * index, sizeof bits);
  return formats::f16_to_f32(bits);
}

void round(const float* x, int64_t width, int64_t blocks, const RoundedRow& row) {
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * kQuantBlock, count = std::clamp<int64_t>(width - begin, 0, kQuantBlock);
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i) largest = std::max(largest, magnitude_bits(x[begin + i]));
    const BlockScale scale = block_scale(largest, steps_of(row));
    int32_t sum = 0;
    for (int64_t i = 0; i < kQuantBlock; ++i) {
      // lrint rounds to nearest even, as the vector conversion does.
      const bool zero = i >= count || scale.inverse == 0.0f;
      sum += write_value(row, begin + i, zero ? 0 : static_cast<int32_t>(std::lrint(x[begin + i] * scale.inverse)));
    }
    write_block(row, b, scale.scale, sum);
  }
}

// The sum of one block of one output, a whole number.
template <typename Weight>
int32_t block_sum(const int8_t* x, const int8_t* fine, const Weight& weight) {
  int32_t sum = 0;
  for (int i = 0; i < kQuantBlock; ++i) sum += weight(i) * (fine == nullptr ? x[i] : 256 * x[i] + fine[i]);
  return sum;
}

int byte_at(const std::byte* groups, int64_t lane, int i) {
  return std::to_integer<int>(groups[(i / 4 * kQuantLanes + lane) * 4 + i % 4]);
}

// Four bits: inputs 0..15 are the low halves of four groups, 16..31 the high ones.
int nibble_at(const std::byte* groups, int64_t lane, int i) {
  const int both = byte_at(groups, lane, i % 16);
  return i < 16 ? both & 15 : both >> 4;
}

template <QuantType kType>
void product(const RoundedView& x, int64_t first, int64_t rows, const std::byte* panel, float* y, int64_t y_stride) {
  constexpr int64_t kGroups = kType == QuantType::q8_0 ? 512 : 256, kHalves = kQuantLanes * 2;
  for (int64_t m = 0; m < rows; ++m) {
    const int64_t at = (first + m) * x.blocks;
    for (int64_t lane = 0; lane < kQuantLanes; ++lane) {
      float sum = 0.0f;
      for (int64_t b = 0; b < x.blocks; ++b) {
        const std::byte* unit = panel + b / kQuantUnit * quant_unit_bytes(kType);
        const int64_t in_unit = b % kQuantUnit;
        const int8_t* values = x.values + (at + b) * kQuantBlock;
        const int8_t* fine = x.fine == nullptr ? nullptr : x.fine + (at + b) * kQuantBlock;
        const float scale = x.scales[at + b];
        if constexpr (kType == QuantType::q4_1) {
          const std::byte* block = unit + in_unit * (2 * kHalves + kGroups);
          const int32_t whole = block_sum(values, fine, [&](int i) { return nibble_at(block + 2 * kHalves, lane, i); });
          sum = std::fma(static_cast<float>(whole), half_at(block, lane) * scale, sum);
          sum = std::fma(half_at(block + kHalves, lane), x.scaled_sums[at + b], sum);
        } else {
          const std::byte* groups = unit + kQuantUnit * kHalves + in_unit * kGroups;
          const int32_t whole = kType == QuantType::q8_0
                                    ? block_sum(values, fine, [&](int i) { return byte_at(groups, lane, i) - 128; })
                                    : block_sum(values, fine, [&](int i) { return nibble_at(groups, lane, i) - 8; });
          sum = std::fma(static_cast<float>(whole), half_at(unit + in_unit * kHalves, lane) * scale, sum);
        }
      }
      y[m * y_stride + lane] = sum;
    }
  }
}

}  // namespace

const QuantKernels kPlainQuant = {
    "plain", 4, round, {product<QuantType::q8_0>, product<QuantType::q4_0>, product<QuantType::q4_1>}};

}  // namespace pacer::nn
