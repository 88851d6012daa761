// From f32 to the types of GGUF files that Pacer writes; dequantize.cpp is the way back.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "pacer/base/error.h"
#include "pacer/formats/ggml_types.h"
#include "pacer/formats/half.h"

namespace pacer::formats {
namespace {

// Scale max|x| / 127, values x / scale to nearest, halves away from zero; the scale is stored in f16, the division made
// before that rounding (quantize_row_q8_0_ref of ggml).
void q8_0(const float* in, std::byte* out) {
  constexpr int kBlock = 32;
  float largest = 0.0f;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::abs(in[i]));
  const float scale = largest / 127.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  const uint16_t stored = f32_to_f16(scale);
  std::memcpy(out, &stored, sizeof stored);
  for (int i = 0; i < kBlock; ++i) {
    out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(in[i] * inverse)));
  }
}

void require_finite(std::span<const float> values, const std::string& place) {
  if (std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) return;
  throw Error(ErrorKind::data, place + ": a value is infinite or no number and has no place in a block",
              "the weights are damaged; bf16 and f32 files can hold them");
}

}  // namespace

bool can_quantize(GgmlType type) {
  return type == GgmlType::F32 || type == GgmlType::F16 || type == GgmlType::BF16 || type == GgmlType::Q8_0;
}

void quantize_blocks(GgmlType type, std::span<const float> values, std::span<std::byte> out, const std::string& place) {
  const GgmlLayout& layout = ggml_layout(type);
  if (!can_quantize(type)) throw Error(ErrorKind::bug, std::string(layout.name) + " is not written");
  if (values.size() % layout.block_values != 0 ||
      out.size() != values.size() / layout.block_values * layout.block_bytes) {
    throw Error(ErrorKind::bug, "quantize_blocks: " + std::to_string(values.size()) + " values of type " +
                                    std::string(layout.name) + " into " + std::to_string(out.size()) + " bytes");
  }
  if (type != GgmlType::Q8_0) {
    const DType plain = type == GgmlType::F32 ? DType::F32 : type == GgmlType::F16 ? DType::F16 : DType::BF16;
    return from_f32(values, plain, out);
  }
  require_finite(values, place);
  for (size_t block = 0; block < values.size() / layout.block_values; ++block) {
    q8_0(values.data() + block * layout.block_values, out.data() + block * layout.block_bytes);
  }
}

}  // namespace pacer::formats
