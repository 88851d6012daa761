// The product's loops over AVX-512 registers, compiled once per kind of factor; include only from
// vocab_loss_product_*.cpp. The rows of `a` lie across the lanes and the rows of `w` are broadcast unit by unit, so `w`
// (a frozen head, the large factor) is read as it lies in memory and needs no packed copy.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "pacer/nn/vocab_loss_product_kernel.h"

namespace pacer::nn::detail {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kPanel = 2 * kLanes;

// Sums of V * 16 rows with N rows of w, written to block[v][n][lane] with `apart` columns from v to v: up to 24
// accumulators hide the latency of the product and leave registers for the operands. Dot::add(sum, rows, weight) adds
// the product of one unit in every lane.
template <typename Dot, int V, int N>
[[gnu::always_inline]] inline void sums(const uint32_t* a, const char* w, int64_t w_stride, int64_t units, float* block,
                                        int64_t apart) {
  __m512 sum[V][N];
  for (int v = 0; v < V; ++v) {
    for (int n = 0; n < N; ++n) sum[v][n] = _mm512_setzero_ps();
  }
  for (int64_t unit = 0; unit < units; ++unit) {
    __m512i rows[V];
    for (int v = 0; v < V; ++v) rows[v] = _mm512_loadu_si512(a + unit * kPanel + v * kLanes);
    for (int n = 0; n < N; ++n) {
      int value;
      std::memcpy(&value, w + n * w_stride + 4 * unit, sizeof value);
      const __m512i weight = _mm512_set1_epi32(value);
      for (int v = 0; v < V; ++v) sum[v][n] = Dot::add(sum[v][n], rows[v], weight);
    }
  }
  for (int v = 0; v < V; ++v) {
    for (int n = 0; n < N; ++n) _mm512_store_ps(block + (v * apart + n) * kLanes, sum[v][n]);
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

// Columns from `begin` on, N at a time, in whole groups that are also a number of lines; returns where they end.
template <typename Dot, int V, int N>
int64_t panel_groups(const ProductArguments& p, int64_t panel, int64_t begin, int64_t end) {
  constexpr int64_t kGroup = std::lcm(kLanes, static_cast<int64_t>(N));
  alignas(64) float block[V * kGroup * kLanes];
  const uint32_t* a = p.packed + panel * p.units * kPanel;
  const int64_t live = std::min<int64_t>(V * kLanes, p.rows - panel * kPanel);
  int64_t first = begin;
  for (; first + kGroup <= end; first += kGroup) {
    for (int64_t done = 0; done < kGroup; done += N) {
      sums<Dot, V, N>(a, p.w + (first + done) * p.w_stride, p.w_stride, p.units, block + done * kLanes, kGroup);
    }
    for (int64_t column = 0; column < kGroup; column += kLanes) {
      for (int64_t v = 0; v < V; ++v) {
        float* out = p.out + (panel * kPanel + v * kLanes) * p.out_stride + first + column;
        store_turned(block + (v * kGroup + column) * kLanes, out, p.out_stride, std::min(kLanes, live - v * kLanes),
                     kLanes, p.accumulate);
      }
    }
  }
  return first;
}

// The last columns, fewer than 16, one by one.
template <typename Dot, int V>
void panel_rest(const ProductArguments& p, int64_t panel, int64_t begin, int64_t end) {
  if (begin == end) return;
  alignas(64) float block[V * kLanes * kLanes] = {};
  const uint32_t* a = p.packed + panel * p.units * kPanel;
  const int64_t live = std::min<int64_t>(V * kLanes, p.rows - panel * kPanel);
  for (int64_t column = begin; column < end; ++column) {
    sums<Dot, V, 1>(a, p.w + column * p.w_stride, p.w_stride, p.units, block + (column - begin) * kLanes, kLanes);
  }
  for (int64_t v = 0; v < V; ++v) {
    float* out = p.out + (panel * kPanel + v * kLanes) * p.out_stride + begin;
    store_turned(block + v * kLanes * kLanes, out, p.out_stride, std::min(kLanes, live - v * kLanes), end - begin,
                 p.accumulate);
  }
}

template <typename Dot>
void columns(const ProductArguments& p, int64_t begin, int64_t end) {
  for (int64_t panel = 0; panel * kPanel < p.rows; ++panel) {
    if (p.rows - panel * kPanel <= kLanes) {
      panel_rest<Dot, 1>(p, panel, panel_groups<Dot, 1, 16>(p, panel, begin, end), end);
    } else {
      const int64_t rest = panel_groups<Dot, 2, 8>(p, panel, panel_groups<Dot, 2, 12>(p, panel, begin, end), end);
      panel_rest<Dot, 2>(p, panel, rest, end);
    }
  }
}

}  // namespace
}  // namespace pacer::nn::detail
