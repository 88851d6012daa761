// The element types of GGUF tensors: blocks of values that share scales, and what a block is worth in f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace pacer::formats {

// The numbers are those of the file format.
enum class GgmlType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
};

struct GgmlLayout {
  GgmlType type;
  std::string_view name;
  uint32_t block_values;  // values per block
  uint32_t block_bytes;
};

// Throws Error{format} naming place for a number that no known type has.
const GgmlLayout& ggml_layout(uint32_t type, const std::string& place);
const GgmlLayout& ggml_layout(GgmlType type);

// Whether dequantize_blocks knows the type; the others are only named and measured.
bool can_dequantize(GgmlType type);

// blocks: whole blocks of the type; out: as many values as they hold. Each value is computed in f32 in the order of the
// reference implementation, so it agrees with it to one unit in the last place. I32 and F64 are rounded to f32.
// Throws Error{format} for a type that it does not know, Error{bug} when the sizes do not fit.
void dequantize_blocks(GgmlType type, std::span<const std::byte> blocks, std::span<float> out);

// Types that can be written: F32, F16, BF16 (to nearest even) and Q8_0 (scale max|x| / 127 in f16).
bool can_quantize(GgmlType type);

// values: whole blocks; out: exactly their bytes. Throws Error{data} naming place when a value that goes into a block
// is not finite, Error{bug} for another type or when the sizes do not fit.
void quantize_blocks(GgmlType type, std::span<const float> values, std::span<std::byte> out, const std::string& place);

}  // namespace pacer::formats
