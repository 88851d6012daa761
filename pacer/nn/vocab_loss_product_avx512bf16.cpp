// bf16 x bf16 -> f32 by vdpbf16ps: a unit is a pair.
#include "pacer/nn/vocab_loss_product_kernel.h"

#if defined(__x86_64__)

#include "pacer/nn/vocab_loss_product_body.h"

namespace pacer::nn::detail {
namespace {

struct Bf16Dot {
  static __m512 add(__m512 sum, __m512i rows, __m512i weight) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(rows), reinterpret_cast<__m512bh>(weight));
  }
};

}  // namespace

Product bf16_product_avx512() {
  const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
  return can ? columns<Bf16Dot> : nullptr;
}

}  // namespace pacer::nn::detail

#else

namespace pacer::nn::detail {
Product bf16_product_avx512() { return nullptr; }
}  // namespace pacer::nn::detail

#endif
