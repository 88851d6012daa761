// f32 factors.
#include "pacer/optim/product_kernel.h"

#if defined(__x86_64__)

#include "pacer/optim/product_kernel_body.h"

namespace pacer::optim::detail {
namespace {

struct F32 {
  using Type = float;
  static constexpr int64_t kPerUnit = 1;

  static __m512 add(__m512 sum, __m512i b, __m512i a) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(b), _mm512_castsi512_ps(a), sum);
  }
  static __m512 load(const float* place, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, place); }
  static void store(float* place, __mmask16 mask, __m512 values) { _mm512_mask_storeu_ps(place, mask, values); }
  static __m512i load_units(const float* place, int64_t elements) {
    return _mm512_maskz_loadu_epi32(lanes_below(elements), place);
  }
  static int tail_unit(const float*) { return 0; }  // there are no parts of a unit

  static void pack_rows(const ProductArguments& p, int64_t first, int64_t live, int64_t units, uint32_t* panel) {
    const float* b = static_cast<const float*>(p.b) + first;
    for (int64_t unit = 0; unit < units; ++unit, b += p.b_stride, panel += kPanelColumns) {
      for (int64_t lane = 0; lane < kPanelColumns; lane += kLanes) {
        _mm512_store_si512(panel + lane, _mm512_maskz_loadu_epi32(lanes_below(live - lane), b + lane));
      }
    }
  }
};

}  // namespace

const ProductKernel* f32_product_kernel() {
  const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return can ? &kKernel<F32> : nullptr;
}

}  // namespace pacer::optim::detail

#else

namespace pacer::optim::detail {
const ProductKernel* f32_product_kernel() { return nullptr; }
}  // namespace pacer::optim::detail

#endif
