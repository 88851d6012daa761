// Quantised products by VNNI: one instruction multiplies and sums four bytes in each of sixteen lanes, exactly.
#include <immintrin.h>

#include "pacer/nn/quant_kernel_sets.h"
#include "pacer/nn/quant_rounding.h"

#define PACER_INLINE [[gnu::always_inline]] inline

namespace pacer::nn {
namespace {

// Fetches a line ahead of its use, into the second cache level: on their way to the first, lines would push out the
// rows of x.
PACER_INLINE void prefetch_line(const std::byte* at, int64_t ahead) {
  _mm_prefetch(reinterpret_cast<const char*>(at) + ahead, _MM_HINT_T1);
}

PACER_INLINE __m512 halves(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

PACER_INLINE __m512i four(const int8_t* at) {
  int32_t bits;
  __builtin_memcpy(&bits, at, sizeof bits);
  return _mm512_set1_epi32(bits);
}

// Sixteen outputs of one block: start + sum of weights (unsigned) times values (signed). A product waits four cycles
// for its predecessor, so few rows get two chains; many rows hide that behind each other. Whole numbers do not mind the
// order.
template <int kRows>
PACER_INLINE __m512i block_sum(const __m512i* w, const int8_t* x, __m512i start) {
  if constexpr (kRows >= 4) {
    for (int g = 0; g < 8; ++g) start = _mm512_dpbusd_epi32(start, w[g], four(x + 4 * g));
    return start;
  }
  __m512i other = _mm512_setzero_si512();
  for (int g = 0; g < 4; ++g) {
    start = _mm512_dpbusd_epi32(start, w[g], four(x + 4 * g));
    other = _mm512_dpbusd_epi32(other, w[g + 4], four(x + 16 + 4 * g));
  }
  return _mm512_add_epi32(start, other);
}

PACER_INLINE void load_bytes(const std::byte* groups, int64_t ahead, __m512i* w) {
  for (int g = 0; g < 8; ++g) {
    w[g] = _mm512_loadu_si512(groups + 64 * g);
    prefetch_line(groups + 64 * g, ahead);
  }
}

PACER_INLINE void load_nibbles(const std::byte* groups, int64_t ahead, __m512i* w) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int g = 0; g < 4; ++g) {
    const __m512i both = _mm512_loadu_si512(groups + 64 * g);
    prefetch_line(groups + 64 * g, ahead);
    w[g] = _mm512_and_si512(both, low);
    w[g + 4] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
  }
}

template <QuantType kType, bool kFine, int kRows>
void tile(const RoundedView& x, int64_t first, const std::byte* panel, float* y, int64_t y_stride) {
  constexpr int64_t kGroups = kType == QuantType::q8_0 ? 512 : 256;
  const int64_t ahead = kRows <= 2 ? x.few_rows_ahead : 8192;
  const int32_t* starts = kType == QuantType::q8_0 ? x.minus_128 : x.minus_8;
  __m512 acc[kRows];
  for (__m512& sum : acc) sum = _mm512_setzero_ps();
  for (int64_t unit = 0; unit < x.blocks; unit += kQuantUnit, panel += quant_unit_bytes(kType)) {
    for (int64_t half = 0; half < kQuantUnit; ++half) {
      __m512i w[8];
      __m512 d, minimum = _mm512_setzero_ps();
      if constexpr (kType == QuantType::q4_1) {
        const std::byte* block = panel + half * (64 + kGroups);
        d = halves(block), minimum = halves(block + 32);
        prefetch_line(block, ahead);
        load_nibbles(block + 64, ahead, w);
      } else {
        d = halves(panel + 32 * half);
        if (half == 0) prefetch_line(panel, ahead);
        const std::byte* groups = panel + 64 + half * kGroups;
        kType == QuantType::q8_0 ? load_bytes(groups, ahead, w) : load_nibbles(groups, ahead, w);
      }
      for (int m = 0; m < kRows; ++m) {
        const int64_t at = (first + m) * x.blocks + unit + half;
        const __m512i start = kType == QuantType::q4_1 ? _mm512_setzero_si512() : _mm512_set1_epi32(starts[at]);
        __m512i sum;
        if constexpr (kFine) {
          const __m512i high = block_sum<kRows>(w, x.values + at * kQuantBlock, _mm512_setzero_si512());
          sum = _mm512_add_epi32(_mm512_slli_epi32(high, 8), block_sum<kRows>(w, x.fine + at * kQuantBlock, start));
        } else {
          sum = block_sum<kRows>(w, x.values + at * kQuantBlock, start);
        }
        const __m512 whole = _mm512_cvtepi32_ps(sum);
        acc[m] = _mm512_fmadd_ps(whole, _mm512_mul_ps(d, _mm512_set1_ps(x.scales[at])), acc[m]);
        if constexpr (kType == QuantType::q4_1) {
          acc[m] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x.scaled_sums[at]), acc[m]);
        }
      }
    }
  }
  for (int m = 0; m < kRows; ++m) _mm512_storeu_ps(y + m * y_stride, acc[m]);
}

// Every number of rows is its own unrolled loop.
template <QuantType kType, bool kFine, int kMostRows>
void rows_of_tile(const RoundedView& x, int64_t first, int64_t rows, const std::byte* panel, float* y,
                  int64_t y_stride) {
  if constexpr (kMostRows > 0) {
    if (rows == kMostRows) return tile<kType, kFine, kMostRows>(x, first, panel, y, y_stride);
    rows_of_tile<kType, kFine, kMostRows - 1>(x, first, rows, panel, y, y_stride);
  }
}

template <QuantType kType>
void product(const RoundedView& x, int64_t first, int64_t rows, const std::byte* panel, float* y, int64_t y_stride) {
  if (x.fine == nullptr) return rows_of_tile<kType, false, 8>(x, first, rows, panel, y, y_stride);
  rows_of_tile<kType, true, 8>(x, first, rows, panel, y, y_stride);
}

// Two bytes of sixteen whole numbers, as write_value; returns what was kept.
PACER_INLINE __m512i split(__m512i n, int8_t* values, int8_t* fine) {
  const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(128)), 8);
  const __m512i rest = _mm512_sub_epi32(n, _mm512_slli_epi32(high, 8));
  const __m512i low = _mm512_max_epi32(rest, _mm512_set1_epi32(-127));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(values), _mm512_cvtepi32_epi8(high));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(fine), _mm512_cvtepi32_epi8(low));
  return _mm512_add_epi32(_mm512_slli_epi32(high, 8), low);
}

void round(const float* x, int64_t width, int64_t blocks, const RoundedRow& row) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * kQuantBlock, count = width - begin;
    const auto mask = [&](int64_t from) {
      return static_cast<__mmask16>(count >= from + 16 ? 0xffff : count <= from ? 0 : (1u << (count - from)) - 1u);
    };
    const __m512 low = _mm512_maskz_loadu_ps(mask(0), x + begin),
                 high = _mm512_maskz_loadu_ps(mask(16), x + begin + 16);
    const __m512i largest = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                                             _mm512_and_si512(_mm512_castps_si512(high), magnitude));
    const BlockScale scale = block_scale(_mm512_reduce_max_epu32(largest), steps_of(row));
    __m512i a = _mm512_setzero_si512(), c = a;
    if (scale.inverse != 0.0f) {
      const __m512 inverse = _mm512_set1_ps(scale.inverse);
      a = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse)), c = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
    }
    if (row.fine != nullptr) a = split(a, row.values + begin, row.fine + begin);
    if (row.fine != nullptr) c = split(c, row.values + begin + 16, row.fine + begin + 16);
    if (row.fine != nullptr) {
      write_block(row, b, scale.scale, _mm512_reduce_add_epi32(_mm512_add_epi32(a, c)));
      continue;
    }
    auto* to = reinterpret_cast<__m128i*>(row.values + begin);
    _mm_storeu_si128(to, _mm512_cvtepi32_epi8(a));
    _mm_storeu_si128(to + 1, _mm512_cvtepi32_epi8(c));
    write_block(row, b, scale.scale, _mm512_reduce_add_epi32(_mm512_add_epi32(a, c)));
  }
}

constexpr QuantKernels kKernels = {
    "avx512", 8, round, {product<QuantType::q8_0>, product<QuantType::q4_0>, product<QuantType::q4_1>}};

}  // namespace

const QuantKernels* const kAvx512Quant = &kKernels;

}  // namespace pacer::nn

#undef PACER_INLINE
