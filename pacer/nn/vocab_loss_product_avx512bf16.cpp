// bf16 x bf16 -> f32 by vdpbf16ps: a unit is a pair.
#include "pacer/nn/vocab_loss_product_kernel.h"

#if defined(__x86_64__)

#include "pacer/nn/vocab_loss_back_product_body.h"
#include "pacer/nn/vocab_loss_product_body.h"

namespace pacer::nn::detail {
namespace {

struct Bf16Dot {
  static __m512 add(__m512 sum, __m512i rows, __m512i weight) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(rows), reinterpret_cast<__m512bh>(weight));
  }

  using Element = uint16_t;
  static constexpr int64_t kPerUnit = 2;
  static void copy(const char* row, int64_t elements, uint32_t* to) {
    if (elements % 2 != 0) to[elements / 2] = 0;  // a pair whose second half is missing
    std::memcpy(to, row, static_cast<size_t>(elements) * sizeof(uint16_t));
  }
  // Two rows of w become 32 pairs, in the order of the columns.
  static void pack(const char* w, int64_t stride, int64_t elements, int64_t columns, uint32_t* to) {
    const auto live = static_cast<__mmask32>(columns >= 32 ? 0xffffffffu : (1u << columns) - 1u);
    alignas(64) uint16_t order[2][32];
    for (uint16_t i = 0; i < 32; ++i) {
      order[0][i] = static_cast<uint16_t>(i / 2 + 32 * (i % 2));
      order[1][i] = static_cast<uint16_t>(order[0][i] + 16);
    }
    const __m512i first = _mm512_load_si512(order[0]), second = _mm512_load_si512(order[1]);
    for (int64_t i = 0; i < elements; i += 2) {
      const __m512i even = _mm512_maskz_loadu_epi16(live, w + i * stride);
      const __m512i odd =
          i + 1 < elements ? _mm512_maskz_loadu_epi16(live, w + (i + 1) * stride) : _mm512_setzero_si512();
      _mm512_store_si512(to + i * 16, _mm512_permutex2var_epi16(even, first, odd));
      _mm512_store_si512(to + i * 16 + 16, _mm512_permutex2var_epi16(even, second, odd));
    }
  }
};

bool can() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
}

}  // namespace

Product bf16_product_avx512() { return can() ? columns<Bf16Dot> : nullptr; }
BackProduct bf16_back_product_avx512() { return can() ? back_columns<Bf16Dot> : nullptr; }

}  // namespace pacer::nn::detail

#else

namespace pacer::nn::detail {
Product bf16_product_avx512() { return nullptr; }
BackProduct bf16_back_product_avx512() { return nullptr; }
}  // namespace pacer::nn::detail

#endif
