// f32 x f32 -> f32.
#include "pacer/nn/vocab_loss_product_kernel.h"

#if defined(__x86_64__)

#include "pacer/nn/vocab_loss_back_product_body.h"
#include "pacer/nn/vocab_loss_product_body.h"

namespace pacer::nn::detail {
namespace {

struct F32Dot {
  static __m512 add(__m512 sum, __m512i rows, __m512i weight) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(rows), _mm512_castsi512_ps(weight), sum);
  }

  using Element = float;
  static constexpr int64_t kPerUnit = 1;
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

bool can() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
}

}  // namespace

Product f32_product_avx512() { return can() ? columns<F32Dot> : nullptr; }
BackProduct f32_back_product_avx512() { return can() ? back_columns<F32Dot> : nullptr; }

}  // namespace pacer::nn::detail

#else

namespace pacer::nn::detail {
Product f32_product_avx512() { return nullptr; }
BackProduct f32_back_product_avx512() { return nullptr; }
}  // namespace pacer::nn::detail

#endif
