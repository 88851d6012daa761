// f32 x f32 -> f32.
#include "pacer/nn/vocab_loss_product_kernel.h"

#if defined(__x86_64__)

#include "pacer/nn/vocab_loss_product_body.h"

namespace pacer::nn::detail {
namespace {

struct F32Dot {
  static __m512 add(__m512 sum, __m512i rows, __m512i weight) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(rows), _mm512_castsi512_ps(weight), sum);
  }
};

}  // namespace

Product f32_product_avx512() {
  const bool can =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  return can ? columns<F32Dot> : nullptr;
}

}  // namespace pacer::nn::detail

#else

namespace pacer::nn::detail {
Product f32_product_avx512() { return nullptr; }
}  // namespace pacer::nn::detail

#endif
