// f32 x f32 -> f32, and on the way back bf16 as f32.
#include "pacer/nn/vocab_loss_product_kernel.h"

#if defined(__x86_64__)

#include "pacer/nn/vocab_loss_back_product_body.h"
#include "pacer/nn/vocab_loss_product_body.h"

namespace pacer::nn::detail {
namespace {

void widen(const char* from, int64_t count, void* to) {
  for (int64_t i = 0; i < count; i += 16) {
    const auto live = static_cast<__mmask16>(count - i >= 16 ? 0xffffu : (1u << (count - i)) - 1u);
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(live, from + 2 * i));
    _mm512_mask_storeu_epi32(static_cast<char*>(to) + 4 * i, live, _mm512_slli_epi32(bits, 16));
  }
}

struct F32Dot {
  static __m512 add(__m512 sum, __m512i rows, __m512i weight) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(rows), _mm512_castsi512_ps(weight), sum);
  }

  using Element = float;
  static constexpr int64_t kPerUnit = 1;
  static void copy(const char* row, int64_t elements, uint32_t* to) {
    std::memcpy(to, row, static_cast<size_t>(elements) * sizeof(float));
  }
  static void pack(const char* w, int64_t stride, int64_t elements, int64_t columns, uint32_t* to) {
    const auto low = static_cast<__mmask16>(columns >= 16 ? 0xffffu : (1u << columns) - 1u);
    const auto high = static_cast<__mmask16>(columns >= 32   ? 0xffffu
                                             : columns <= 16 ? 0u
                                                             : (1u << (columns - 16)) - 1u);
    for (int64_t i = 0; i < elements; ++i) {
      _mm512_store_si512(to + i * 32, _mm512_maskz_loadu_epi32(low, w + i * stride));
      _mm512_store_si512(to + i * 32 + 16, _mm512_maskz_loadu_epi32(high, w + i * stride + 64));
    }
  }
};

struct WideBf16 {
  static __m512 add(__m512 sum, __m512i rows, __m512i weight) { return F32Dot::add(sum, rows, weight); }

  using Element = uint16_t;
  static constexpr int64_t kPerUnit = 1;
  static void copy(const char* row, int64_t elements, uint32_t* to) { widen(row, elements, to); }
  static void pack(const char* w, int64_t stride, int64_t elements, int64_t columns, uint32_t* to) {
    const auto live = static_cast<__mmask32>(columns >= 32 ? 0xffffffffu : (1u << columns) - 1u);
    for (int64_t i = 0; i < elements; ++i) {
      const __m512i bits = _mm512_maskz_loadu_epi16(live, w + i * stride);
      const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(bits));
      const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(bits, 1));
      _mm512_store_si512(to + i * 32, _mm512_slli_epi32(low, 16));
      _mm512_store_si512(to + i * 32 + 16, _mm512_slli_epi32(high, 16));
    }
  }
};

bool can() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

void widen_bf16_avx512(const char* from, int64_t count, float* to) { widen(from, count, to); }

Product f32_product_avx512() { return can() ? columns<F32Dot> : nullptr; }
BackProduct f32_back_product_avx512() { return can() ? back_columns<F32Dot> : nullptr; }
BackProduct wide_bf16_back_product_avx512() { return can() ? back_columns<WideBf16> : nullptr; }

}  // namespace pacer::nn::detail

#else

namespace pacer::nn::detail {
void widen_bf16_avx512(const char*, int64_t, float*) {}
Product f32_product_avx512() { return nullptr; }
BackProduct f32_back_product_avx512() { return nullptr; }
BackProduct wide_bf16_back_product_avx512() { return nullptr; }
}  // namespace pacer::nn::detail

#endif
