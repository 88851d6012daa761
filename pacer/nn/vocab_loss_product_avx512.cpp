// bf16 x bf16 -> f32 by vdpbf16ps. The rows of `a` lie across the lanes and the rows of `w` are broadcast pair by pair,
// so `w` (a frozen head, the large factor) is read as it lies in memory and needs no packed copy.
#include "pacer/nn/vocab_loss_product_kernel.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstring>

namespace pacer::nn::detail {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPanel = 2 * kLanes;

// Sums of V * 16 rows with N rows of w, written to block[v][n][lane]: 16 accumulators hide the latency of the product
// and leave registers for the operands.
template <int V, int N>
[[gnu::always_inline]] inline void sums(const uint16_t* a, const uint16_t* w, int64_t w_stride, int64_t pairs,
                                        float* block) {
  __m512 sum[V][N];
  for (int v = 0; v < V; ++v) {
    for (int n = 0; n < N; ++n) sum[v][n] = _mm512_setzero_ps();
  }
  for (int64_t pair = 0; pair < pairs; ++pair) {
    __m512bh rows[V];
    for (int v = 0; v < V; ++v) {
      rows[v] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(a + pair * kPanel * 2 + v * 2 * kLanes));
    }
    for (int n = 0; n < N; ++n) {
      int both;
      std::memcpy(&both, w + n * w_stride + 2 * pair, sizeof both);
      const __m512bh weight = reinterpret_cast<__m512bh>(_mm512_set1_epi32(both));
      for (int v = 0; v < V; ++v) sum[v][n] = _mm512_dpbf16_ps(sum[v][n], rows[v], weight);
    }
  }
  for (int v = 0; v < V; ++v) {
    for (int n = 0; n < N; ++n) _mm512_store_ps(block + (v * kLanes + n) * kLanes, sum[v][n]);
  }
}

__m512 low_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
__m512 high_pairs(__m512 a, __m512 b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

// block[column][row] -> out[row][column], 16 x 16; column by column the stores would touch a page each.
[[gnu::always_inline]] inline void store_turned(const float* block, float* out, int64_t stride, int64_t rows,
                                                int64_t columns, bool accumulate) {
  __m512 t[16], u[16];
  for (int i = 0; i < 8; ++i) {
    const __m512 even = _mm512_load_ps(block + 32 * i), odd = _mm512_load_ps(block + 32 * i + 16);
    u[2 * i] = _mm512_unpacklo_ps(even, odd);
    u[2 * i + 1] = _mm512_unpackhi_ps(even, odd);
  }
  for (int i = 0; i < 16; i += 4) {
    t[i] = low_pairs(u[i], u[i + 2]);
    t[i + 1] = high_pairs(u[i], u[i + 2]);
    t[i + 2] = low_pairs(u[i + 1], u[i + 3]);
    t[i + 3] = high_pairs(u[i + 1], u[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    u[i] = _mm512_shuffle_f32x4(t[i], t[4 + i], 0x88);
    u[4 + i] = _mm512_shuffle_f32x4(t[i], t[4 + i], 0xdd);
    u[8 + i] = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0x88);
    u[12 + i] = _mm512_shuffle_f32x4(t[8 + i], t[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_f32x4(u[i], u[8 + i], 0x88);
    t[8 + i] = _mm512_shuffle_f32x4(u[i], u[8 + i], 0xdd);
    t[4 + i] = _mm512_shuffle_f32x4(u[4 + i], u[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_f32x4(u[4 + i], u[12 + i], 0xdd);
  }
  const auto mask = static_cast<__mmask16>((1u << columns) - 1u);
  for (int row = 0; row < 16; ++row) {  // unrolled, so that t stays in registers
    if (row >= rows) break;
    float* to = out + row * stride;
    const __m512 before = accumulate ? _mm512_maskz_loadu_ps(mask, to) : _mm512_setzero_ps();
    _mm512_mask_storeu_ps(to, mask, _mm512_add_ps(before, t[row]));
  }
}

template <int V, int N>
void panel_columns(const Bf16ProductArguments& p, int64_t panel, int64_t begin, int64_t end) {
  alignas(64) float block[V * kLanes * kLanes] = {};
  const uint16_t* a = p.packed + panel * p.pairs * kPanel * 2;
  const int64_t live = std::min<int64_t>(V * kLanes, p.rows - panel * kPanel);
  for (int64_t column = begin; column < end; column += kLanes) {
    const int64_t columns = std::min(kLanes, end - column);
    const uint16_t* w = p.w + column * p.w_stride;
    int64_t done = 0;
    for (; done + N <= columns; done += N) {
      sums<V, N>(a, w + done * p.w_stride, p.w_stride, p.pairs, block + done * kLanes);
    }
    for (; done < columns; ++done) {
      sums<V, 1>(a, w + done * p.w_stride, p.w_stride, p.pairs, block + done * kLanes);
    }
    for (int v = 0; v < V; ++v) {
      const int64_t rows = std::min(kLanes, live - v * kLanes);
      float* out = p.out + (panel * kPanel + v * kLanes) * p.out_stride + column;
      store_turned(block + v * kLanes * kLanes, out, p.out_stride, rows, columns, p.accumulate);
    }
  }
}

void columns(const Bf16ProductArguments& p, int64_t begin, int64_t end) {
  for (int64_t panel = 0; panel * kPanel < p.rows; ++panel) {
    if (p.rows - panel * kPanel <= kLanes) {
      panel_columns<1, 16>(p, panel, begin, end);
    } else {
      panel_columns<2, 8>(p, panel, begin, end);
    }
  }
}

}  // namespace

Bf16Product bf16_product_avx512() {
  const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bf16");
  return can ? columns : nullptr;
}

}  // namespace pacer::nn::detail

#else

namespace pacer::nn::detail {
Bf16Product bf16_product_avx512() { return nullptr; }
}  // namespace pacer::nn::detail

#endif
