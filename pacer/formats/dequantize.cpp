// Layouts and formulas of the block formats as ggml defines them (ggml-common.h, ggml-quants.c). All numbers are little
// endian. In every format the value is scale * integer (+ or - minimum); what differs is how the bits are packed.
#include <bit>
#include <cstring>
#include <string>

#include "pacer/base/error.h"
#include "pacer/formats/ggml_types.h"
#include "pacer/formats/half.h"

namespace pacer::formats {
namespace {

using Byte = uint8_t;

template <typename T>
T load(const Byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

float half_at(const Byte* bytes) { return f16_to_f32(load<uint16_t>(bytes)); }

template <typename T>
void plain(const Byte* in, float* out) {
  *out = static_cast<float>(load<T>(in));
}
void plain_f16(const Byte* in, float* out) { *out = half_at(in); }
void plain_bf16(const Byte* in, float* out) { *out = bf16_to_f32(load<uint16_t>(in)); }

// Blocks of 32: low nibbles are the first sixteen values, high nibbles the last sixteen.

void q4_0(const Byte* in, float* out) {  // f16 scale, 16 bytes
  const float scale = half_at(in);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((in[2 + i] & 0xF) - 8);
    out[i + 16] = scale * static_cast<float>((in[2 + i] >> 4) - 8);
  }
}

void q4_1(const Byte* in, float* out) {  // f16 scale, f16 minimum, 16 bytes
  const float scale = half_at(in), minimum = half_at(in + 2);
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(in[4 + i] & 0xF) + minimum;
    out[i + 16] = scale * static_cast<float>(in[4 + i] >> 4) + minimum;
  }
}

void q5_0(const Byte* in, float* out) {  // f16 scale, 32 fifth bits, 16 bytes
  const float scale = half_at(in);
  const auto fifth = load<uint32_t>(in + 2);
  for (int i = 0; i < 16; ++i) {
    const auto low = static_cast<int>((in[6 + i] & 0xFu) | (((fifth >> i) & 1u) << 4));
    const auto high = static_cast<int>((in[6 + i] >> 4) | (((fifth >> (i + 16)) & 1u) << 4));
    out[i] = scale * static_cast<float>(low - 16);
    out[i + 16] = scale * static_cast<float>(high - 16);
  }
}

void q5_1(const Byte* in, float* out) {  // f16 scale, f16 minimum, 32 fifth bits, 16 bytes
  const float scale = half_at(in), minimum = half_at(in + 2);
  const auto fifth = load<uint32_t>(in + 4);
  for (int i = 0; i < 16; ++i) {
    const uint32_t low = (in[8 + i] & 0xFu) | (((fifth >> i) & 1u) << 4);
    const uint32_t high = (in[8 + i] >> 4) | (((fifth >> (i + 16)) & 1u) << 4);
    out[i] = scale * static_cast<float>(low) + minimum;
    out[i + 16] = scale * static_cast<float>(high) + minimum;
  }
}

void q8_0(const Byte* in, float* out) {  // f16 scale, 32 signed bytes
  const float scale = half_at(in);
  for (int i = 0; i < 32; ++i) out[i] = scale * static_cast<float>(static_cast<int8_t>(in[2 + i]));
}

// Super-blocks of 256 values with quantised scales per 16 or 32 values.

void q2_k(const Byte* in, float* out) {  // 16 bytes (scale, minimum nibbles), 64 bytes of 2-bit values, f16 d, f16 dmin
  const Byte *scales = in, *packed = in + 16;
  const float d = half_at(in + 80), dmin = half_at(in + 82);
  for (int half = 0; half < 2; ++half, packed += 32) {
    for (int shift = 0; shift < 8; shift += 2) {
      for (int group = 0; group < 2; ++group, ++scales) {
        const float scale = d * static_cast<float>(*scales & 0xF), minimum = dmin * static_cast<float>(*scales >> 4);
        for (int i = 0; i < 16; ++i) {
          *out++ = scale * static_cast<float>((packed[16 * group + i] >> shift) & 3) - minimum;
        }
      }
    }
  }
}

void q3_k(const Byte* in, float* out) {  // 32 bytes of third bits, 64 bytes of 2-bit values, 12 bytes of scales, f16 d
  const Byte *third = in, *packed = in + 32, *scales = in + 96;
  const float d = half_at(in + 108);
  int group = 0;
  for (int half = 0; half < 2; ++half, packed += 32) {
    for (int plane = 0; plane < 4; ++plane) {
      for (int side = 0; side < 2; ++side, ++group) {
        // Six-bit scales: four low bits in bytes 0-7, two high bits in bytes 8-11.
        const int low = group < 8 ? scales[group] & 0xF : scales[group - 8] >> 4;
        const int high = (scales[8 + group % 4] >> (2 * (group / 4))) & 3;
        const float scale = d * static_cast<float>((low | (high << 4)) - 32);
        for (int i = 16 * side; i < 16 * side + 16; ++i) {
          const int below = (third[i] >> (4 * half + plane)) & 1 ? 0 : 4;
          *out++ = scale * static_cast<float>(((packed[i] >> (2 * plane)) & 3) - below);
        }
      }
    }
  }
}

struct ScaleAndMinimum {
  float scale, minimum;
};

// Eight six-bit pairs in twelve bytes: 0-3 hold scales 0-3, 4-7 minima 0-3, 8-11 the low nibbles of the other four
// pairs, whose two high bits fill up bytes 0-7.
ScaleAndMinimum six_bit_pair(const Byte* packed, int index) {
  if (index < 4) return {static_cast<float>(packed[index] & 63), static_cast<float>(packed[index + 4] & 63)};
  const int scale = (packed[index + 4] & 0xF) | ((packed[index - 4] >> 6) << 4);
  const int minimum = (packed[index + 4] >> 4) | ((packed[index] >> 6) << 4);
  return {static_cast<float>(scale), static_cast<float>(minimum)};
}

void q4_k(const Byte* in, float* out) {  // f16 d, f16 dmin, 12 bytes of pairs, 128 bytes of nibbles
  const float d = half_at(in), dmin = half_at(in + 2);
  const Byte* packed = in + 16;
  for (int pair = 0; pair < 8; ++pair) {
    const auto [scale_code, minimum_code] = six_bit_pair(in + 4, pair);
    const float scale = d * scale_code, minimum = dmin * minimum_code;
    const int shift = 4 * (pair % 2);
    for (int i = 0; i < 32; ++i) *out++ = scale * static_cast<float>((packed[i] >> shift) & 0xF) - minimum;
    if (pair % 2 == 1) packed += 32;
  }
}

void q5_k(const Byte* in, float* out) {  // as q4_k, with 32 bytes of fifth bits before the nibbles
  const float d = half_at(in), dmin = half_at(in + 2);
  const Byte *fifth = in + 16, *packed = in + 48;
  for (int pair = 0; pair < 8; ++pair) {
    const auto [scale_code, minimum_code] = six_bit_pair(in + 4, pair);
    const float scale = d * scale_code, minimum = dmin * minimum_code;
    const int shift = 4 * (pair % 2);
    for (int i = 0; i < 32; ++i) {
      const int value = ((packed[i] >> shift) & 0xF) | (((fifth[i] >> pair) & 1) << 4);
      *out++ = scale * static_cast<float>(value) - minimum;
    }
    if (pair % 2 == 1) packed += 32;
  }
}

void q6_k(const Byte* in, float* out) {  // 128 bytes low nibbles, 64 bytes high pairs, 16 signed scales, f16 d
  const float d = half_at(in + 208);
  for (int half = 0; half < 2; ++half) {
    const Byte *low = in + 64 * half, *high = in + 128 + 32 * half, *scales = in + 192 + 8 * half;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = 0; i < 32; ++i) {
        const float scale = d * static_cast<float>(static_cast<int8_t>(scales[2 * quarter + i / 16]));
        const int nibble = (low[i + 32 * (quarter % 2)] >> (4 * (quarter / 2))) & 0xF;
        const int value = (nibble | (((high[i] >> (2 * quarter)) & 3) << 4)) - 32;
        *out++ = scale * static_cast<float>(value);
      }
    }
  }
}

// Non-linear four-bit grids: the sixteen levels of "normal float"-like and of microscaling E2M1 values (the latter
// doubled).
constexpr float kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
constexpr float kE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void nibbles_by_table(const Byte* packed, const float (&table)[16], float scale, float* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * table[packed[i] & 0xF];
    out[i + 16] = scale * table[packed[i] >> 4];
  }
}

void iq4_nl(const Byte* in, float* out) { nibbles_by_table(in + 2, kNonLinear, half_at(in), out); }

void iq4_xs(const Byte* in, float* out) {  // f16 d, u16 high scale bits, 4 bytes low scale bits, 128 bytes of nibbles
  const float d = half_at(in);
  const auto high = load<uint16_t>(in + 2);
  for (int group = 0; group < 8; ++group) {
    const int scale = ((in[4 + group / 2] >> (4 * (group % 2))) & 0xF) | (((high >> (2 * group)) & 3) << 4);
    nibbles_by_table(in + 8 + 16 * group, kNonLinear, d * static_cast<float>(scale - 32), out + 32 * group);
  }
}

void mxfp4(const Byte* in, float* out) {  // power-of-two scale 2^(e - 128) for the doubled table, 16 bytes
  const uint32_t exponent = in[0];
  const float scale = std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  nibbles_by_table(in + 1, kE2M1, scale, out);
}

using Decode = void (*)(const Byte*, float*);

Decode decoder(GgmlType type) {
  switch (type) {
    using enum GgmlType;
    case F32:
      return plain<float>;
    case F64:
      return plain<double>;
    case F16:
      return plain_f16;
    case BF16:
      return plain_bf16;
    case I8:
      return plain<int8_t>;
    case I16:
      return plain<int16_t>;
    case I32:
      return plain<int32_t>;
    case I64:
      return plain<int64_t>;
    case Q4_0:
      return q4_0;
    case Q4_1:
      return q4_1;
    case Q5_0:
      return q5_0;
    case Q5_1:
      return q5_1;
    case Q8_0:
      return q8_0;
    case Q2_K:
      return q2_k;
    case Q3_K:
      return q3_k;
    case Q4_K:
      return q4_k;
    case Q5_K:
      return q5_k;
    case Q6_K:
      return q6_k;
    case IQ4_NL:
      return iq4_nl;
    case IQ4_XS:
      return iq4_xs;
    case MXFP4:
      return mxfp4;
    default:
      return nullptr;
  }
}

}  // namespace

bool can_dequantize(GgmlType type) { return decoder(type) != nullptr; }

void dequantize_blocks(GgmlType type, std::span<const std::byte> blocks, std::span<float> out) {
  const GgmlLayout& layout = ggml_layout(type);
  const Decode decode = decoder(type);
  if (decode == nullptr) {
    throw Error(ErrorKind::format, "tensor type " + std::string(layout.name) + " is not supported",
                "use a file in F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K to Q6_K, IQ4_NL, IQ4_XS or MXFP4");
  }
  const size_t count = blocks.size() / layout.block_bytes;
  if (count * layout.block_bytes != blocks.size() || count * layout.block_values != out.size()) {
    throw Error(ErrorKind::bug, "dequantize: " + std::to_string(blocks.size()) + " bytes of " +
                                    std::string(layout.name) + " into " + std::to_string(out.size()) + " values");
  }
  if (type == GgmlType::F32) {
    if (!out.empty()) std::memcpy(out.data(), blocks.data(), blocks.size());
    return;
  }
  const auto* in = reinterpret_cast<const Byte*>(blocks.data());
  for (size_t i = 0; i < count; ++i) decode(in + i * layout.block_bytes, out.data() + i * layout.block_values);
}

}  // namespace pacer::formats
