// Quantised products with AVX2: eight outputs at a time, the two halves of a panel one after the other.
#include <immintrin.h>

#include "pacer/nn/quant_kernel_sets.h"
#include "pacer/nn/quant_rounding.h"

#define PACER_INLINE [[gnu::always_inline]] inline

namespace pacer::nn {
namespace {

PACER_INLINE __m256i load(const std::byte* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); }

PACER_INLINE __m256 halves(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

PACER_INLINE __m256i four(const int8_t* at) {
  int32_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return _mm256_set1_epi32(bits);
}

// Eight outputs of one block of q8_0. The instruction wants one unsigned factor and saturates pairs at 32767: with
// |w| <= 128 and |x| <= 127 a pair reaches 32512, so the sign of w goes to x. Exact.
PACER_INLINE __m256i bytes_sum(const std::byte* groups, const int8_t* x) {
  const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi8(static_cast<char>(0x80));
  __m256i sum = _mm256_setzero_si256();
  for (int g = 0; g < 8; ++g) {
    const __m256i w = _mm256_xor_si256(load(groups + 64 * g), offset);  // minus 128
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(four(x + 4 * g), w));
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
  }
  return sum;
}

// The same for four bits without the offset: eight pairs of at most 15 * 127 * 2 stay below 32768.
PACER_INLINE __m256i nibbles_sum(const std::byte* groups, const int8_t* x) {
  const __m256i low = _mm256_set1_epi8(15);
  __m256i pairs = _mm256_setzero_si256();
  for (int g = 0; g < 4; ++g) {
    const __m256i both = load(groups + 64 * g);
    const __m256i first = _mm256_and_si256(both, low), second = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(first, four(x + 4 * g)));
    pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(second, four(x + 16 + 4 * g)));
  }
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

// Eight outputs of one block and row, both bytes of words.
template <QuantType kType>
PACER_INLINE __m256i block_sum(const std::byte* groups, const RoundedView& x, int64_t at) {
  const auto one = [&](const int8_t* bytes) {
    return kType == QuantType::q8_0 ? bytes_sum(groups, bytes) : nibbles_sum(groups, bytes);
  };
  const __m256i sum = one(x.values + at * kQuantBlock);
  if (x.fine == nullptr) return sum;
  return _mm256_add_epi32(_mm256_slli_epi32(sum, 8), one(x.fine + at * kQuantBlock));
}

template <QuantType kType>
void eight_outputs(const RoundedView& x, int64_t row, const std::byte* panel, int64_t lane, float* y) {
  constexpr int64_t kGroups = kType == QuantType::q8_0 ? 512 : 256;
  __m256 acc = _mm256_setzero_ps();
  for (int64_t unit = 0; unit < x.blocks; unit += kQuantUnit, panel += quant_unit_bytes(kType)) {
    for (int64_t half = 0; half < kQuantUnit; ++half) {
      const int64_t at = row * x.blocks + unit + half;
      const __m256 scale = _mm256_set1_ps(x.scales[at]);
      if constexpr (kType == QuantType::q4_1) {
        const std::byte* block = panel + half * (64 + kGroups) + 2 * lane;
        const __m256 whole = _mm256_cvtepi32_ps(block_sum<kType>(panel + half * (64 + kGroups) + 64 + 4 * lane, x, at));
        acc = _mm256_fmadd_ps(whole, _mm256_mul_ps(halves(block), scale), acc);
        acc = _mm256_fmadd_ps(halves(block + 32), _mm256_set1_ps(x.scaled_sums[at]), acc);
      } else {
        const std::byte* groups = panel + 64 + half * kGroups + 4 * lane;
        __m256i sum = block_sum<kType>(groups, x, at);
        if (kType == QuantType::q4_0) sum = _mm256_add_epi32(sum, _mm256_set1_epi32(x.minus_8[at]));
        const __m256 d = halves(panel + 32 * half + 2 * lane);
        acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(d, scale), acc);
      }
    }
  }
  _mm256_storeu_ps(y + lane, acc);
}

// The panel comes from memory once and from the first cache level for the other rows.
template <QuantType kType>
void product(const RoundedView& x, int64_t first, int64_t rows, const std::byte* panel, float* y, int64_t y_stride) {
  for (int64_t m = 0; m < rows; ++m) {
    eight_outputs<kType>(x, first + m, panel, 0, y + m * y_stride);
    eight_outputs<kType>(x, first + m, panel, 8, y + m * y_stride);
  }
}

PACER_INLINE uint32_t largest_of(__m256i v) {
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
}

void round(const float* x, int64_t width, int64_t blocks, const RoundedRow& row) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * kQuantBlock, count = width - begin;
    float padded[kQuantBlock] = {};
    const float* from = x + begin;
    if (count < kQuantBlock) {
      for (int64_t i = 0; i < count; ++i) padded[i] = from[i];
      from = padded;
    }
    __m256i largest = _mm256_setzero_si256();
    for (int i = 0; i < 32; i += 8) {
      const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(from + i));
      largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
    }
    const BlockScale scale = block_scale(largest_of(largest), steps_of(row));
    int32_t sum = 0;
    alignas(32) int32_t wide[kQuantBlock] = {};
    if (scale.inverse != 0.0f) {
      const __m256 inverse = _mm256_set1_ps(scale.inverse);
      for (int i = 0; i < 32; i += 8) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(wide + i),
                           _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(from + i), inverse)));
      }
    }
    for (int i = 0; i < kQuantBlock; ++i) sum += write_value(row, begin + i, wide[i]);
    write_block(row, b, scale.scale, sum);
  }
}

constexpr QuantKernels kKernels = {
    "avx2", 8, round, {product<QuantType::q8_0>, product<QuantType::q4_0>, product<QuantType::q4_1>}};

}  // namespace

const QuantKernels* const kAvx2Quant = &kKernels;

}  // namespace pacer::nn

#undef PACER_INLINE
