// bf16 factors: pairs of them by vdpbf16ps.
#include "pacer/optim/product_kernel.h"

#if defined(__x86_64__)

#include "pacer/optim/product_kernel_body.h"

namespace pacer::optim::detail {
namespace {

struct Bf16 {
  using Type = uint16_t;
  static constexpr int64_t kPerUnit = 2;

  static __m512 add(__m512 sum, __m512i b, __m512i a) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(b), reinterpret_cast<__m512bh>(a));
  }
  static __m512 load(const uint16_t* place, __mmask16 mask) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, place));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void store(uint16_t* place, __mmask16 mask, __m512 values) {  // to the nearest, ties to even
    _mm256_mask_storeu_epi16(place, mask, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(values)));
  }
  static __m512i load_units(const uint16_t* place, int64_t elements) {
    const auto mask = static_cast<__mmask32>(elements >= 32 ? 0xffffffffu : (1u << elements) - 1u);
    return _mm512_maskz_loadu_epi16(mask, place);
  }
  static int tail_unit(const uint16_t* place) { return *place; }  // its second half is 0

  // Two rows of b become pairs, in the order of the columns.
  static void pack_rows(const ProductArguments& p, int64_t first, int64_t live, int64_t units, uint32_t* panel) {
    alignas(64) uint16_t order[2][32];
    for (uint16_t i = 0; i < 32; ++i) {
      order[0][i] = static_cast<uint16_t>(i / 2 + 32 * (i % 2));
      order[1][i] = static_cast<uint16_t>(order[0][i] + 16);
    }
    const __m512i left = _mm512_load_si512(order[0]), right = _mm512_load_si512(order[1]);
    const uint16_t* b = static_cast<const uint16_t*>(p.b) + first;
    for (int64_t unit = 0; unit < units; ++unit, b += 2 * p.b_stride, panel += kPanelColumns) {
      const bool pair = 2 * unit + 1 < p.depth;
      for (int64_t lane = 0; lane < kPanelColumns; lane += 32) {
        const int64_t rest = std::max<int64_t>(0, live - lane);
        const __m512i even = load_units(b + lane, rest);
        const __m512i odd = pair ? load_units(b + p.b_stride + lane, rest) : _mm512_setzero_si512();
        _mm512_store_si512(panel + lane, _mm512_permutex2var_epi16(even, left, odd));
        _mm512_store_si512(panel + lane + 16, _mm512_permutex2var_epi16(even, right, odd));
      }
    }
  }
};

}  // namespace

const ProductKernel* bf16_product_kernel() {
  const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                   __builtin_cpu_supports("avx512bf16");
  return can ? &kKernel<Bf16> : nullptr;
}

}  // namespace pacer::optim::detail

#else

namespace pacer::optim::detail {
const ProductKernel* bf16_product_kernel() { return nullptr; }
}  // namespace pacer::optim::detail

#endif
