// The loops of product_kernel.h over AVX-512 registers, compiled once per element type; include only from
// product_kernel_*.cpp. Columns of b lie across the lanes: 64 of them are laid out as a panel once, then every row of a
// is broadcast against it unit by unit. A unit is four bytes of depth: an f32, or a pair of bf16.
//
// An Element has: Type, kPerUnit, add(sum, b, a), load(place, mask) and store(place, mask, values) of 16 values as f32,
// tail_unit(place), which reads a unit of which only the first element exists, and pack_rows(...).
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "pacer/optim/product_kernel.h"

namespace pacer::optim::detail {
namespace {

constexpr int64_t kLanes = 16;

inline __mmask16 lanes_below(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}

inline __m512i low_pairs(__m512i a, __m512i b) { return _mm512_unpacklo_epi64(a, b); }
inline __m512i high_pairs(__m512i a, __m512i b) { return _mm512_unpackhi_epi64(a, b); }

// 16 x 16 elements of 32 bits.
[[gnu::always_inline]] inline void turn(__m512i (&t)[16]) {
  __m512i u[16];
  for (int i = 0; i < 8; ++i) {
    u[2 * i] = _mm512_unpacklo_epi32(t[2 * i], t[2 * i + 1]);
    u[2 * i + 1] = _mm512_unpackhi_epi32(t[2 * i], t[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    t[i] = low_pairs(u[i], u[i + 2]);
    t[i + 1] = high_pairs(u[i], u[i + 2]);
    t[i + 2] = low_pairs(u[i + 1], u[i + 3]);
    t[i + 3] = high_pairs(u[i + 1], u[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    u[i] = _mm512_shuffle_i32x4(t[i], t[4 + i], 0x88);
    u[4 + i] = _mm512_shuffle_i32x4(t[i], t[4 + i], 0xdd);
    u[8 + i] = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0x88);
    u[12 + i] = _mm512_shuffle_i32x4(t[8 + i], t[12 + i], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(u[i], u[8 + i], 0x88);
    t[8 + i] = _mm512_shuffle_i32x4(u[i], u[8 + i], 0xdd);
    t[4 + i] = _mm512_shuffle_i32x4(u[4 + i], u[12 + i], 0x88);
    t[12 + i] = _mm512_shuffle_i32x4(u[4 + i], u[12 + i], 0xdd);
  }
}

// panel[unit][column of 64] from rows that are the columns of the panel. Elements beyond the depth are 0.
template <typename Element>
void pack_turned(const ProductArguments& p, int64_t first, int64_t live, int64_t units, uint32_t* panel) {
  using Type = typename Element::Type;
  const Type* b = static_cast<const Type*>(p.b) + first * p.b_stride;
  for (int64_t group = 0; group < kPanelColumns; group += kLanes) {
    for (int64_t unit = 0; unit < units; unit += kLanes) {
      __m512i t[16];
      const int64_t element = unit * Element::kPerUnit;
      for (int i = 0; i < 16; ++i) {
        t[i] = group + i < live ? Element::load_units(b + (group + i) * p.b_stride + element, p.depth - element)
                                : _mm512_setzero_si512();
      }
      turn(t);
      const int64_t rest = std::min(kLanes, units - unit);
      for (int i = 0; i < rest; ++i) _mm512_store_si512(panel + (unit + i) * kPanelColumns + group, t[i]);
    }
  }
}

// out[M rows][V * 16 columns], columns beyond `columns` left out.
template <typename Element, int V, int M>
void tile(const ProductArguments& p, int64_t row, int64_t column, const uint32_t* panel) {
  using Type = typename Element::Type;
  const int64_t whole = p.depth / Element::kPerUnit;
  const Type* a = static_cast<const Type*>(p.a) + row * p.a_stride;
  __m512 sum[M][V];
  for (int m = 0; m < M; ++m) {
    for (int v = 0; v < V; ++v) sum[m][v] = _mm512_setzero_ps();
  }
  for (int64_t unit = 0; unit < whole; ++unit) {
    __m512i b[V];
    for (int v = 0; v < V; ++v) b[v] = _mm512_load_si512(panel + unit * kPanelColumns + v * kLanes);
    for (int m = 0; m < M; ++m) {
      int value;
      std::memcpy(&value, a + m * p.a_stride + unit * Element::kPerUnit, sizeof value);
      const __m512i factor = _mm512_set1_epi32(value);
      for (int v = 0; v < V; ++v) sum[m][v] = Element::add(sum[m][v], b[v], factor);
    }
  }
  if (whole * Element::kPerUnit < p.depth) {
    for (int m = 0; m < M; ++m) {
      const __m512i factor = _mm512_set1_epi32(Element::tail_unit(a + m * p.a_stride + whole * Element::kPerUnit));
      for (int v = 0; v < V; ++v) {
        sum[m][v] = Element::add(sum[m][v], _mm512_load_si512(panel + whole * kPanelColumns + v * kLanes), factor);
      }
    }
  }
  const __m512 alpha = _mm512_set1_ps(p.alpha), beta = _mm512_set1_ps(p.beta);
  for (int v = 0; v < V; ++v) {
    const int64_t begin = column + v * kLanes;
    const __mmask16 mask = lanes_below(p.columns - begin);
    if (mask == 0) break;
    for (int m = 0; m < M; ++m) {
      __m512 value = _mm512_mul_ps(sum[m][v], alpha);
      if (p.c != nullptr) {
        const Type* c = static_cast<const Type*>(p.c) + (row + m) * p.c_stride + begin;
        value = _mm512_fmadd_ps(beta, Element::load(c, mask), value);
      }
      Element::store(static_cast<Type*>(p.out) + (row + m) * p.out_stride + begin, mask, value);
    }
  }
}

template <typename Element, int V, int M>
void any_tile(int64_t rows, const ProductArguments& p, int64_t row, int64_t column, const uint32_t* panel) {
  if constexpr (M > 0) {
    if (rows == M) return tile<Element, V, M>(p, row, column, panel);
    any_tile<Element, V, M - 1>(rows, p, row, column, panel);
  }
}

// Rows [begin, end). 24 sums hide the latency of the product and leave registers for its operands.
template <typename Element, int V>
void tiles(const ProductArguments& p, int64_t begin, int64_t end, int64_t column, const uint32_t* panel) {
  constexpr int kRows = V == 4 ? 6 : V == 3 ? 8 : 12;
  for (int64_t row = begin; row < end; row += kRows) {
    any_tile<Element, V, kRows>(std::min<int64_t>(kRows, end - row), p, row, column, panel);
  }
}

template <typename Element>
void panel_of(const ProductArguments& p, int64_t index, void* workspace) {
  const int64_t first = index * kPanelColumns, live = std::min(kPanelColumns, p.columns - first);
  const int64_t units = (p.depth + Element::kPerUnit - 1) / Element::kPerUnit;
  auto* panel = static_cast<uint32_t*>(workspace);
  if (p.b_turned) {
    pack_turned<Element>(p, first, live, units, panel);
  } else {
    Element::pack_rows(p, first, live, units, panel);
  }
  const auto wide = [&](int64_t begin, int64_t end) {
    if (live > 48) {
      tiles<Element, 4>(p, begin, end, first, panel);
    } else if (live > 32) {
      tiles<Element, 3>(p, begin, end, first, panel);
    } else if (live > 16) {
      tiles<Element, 2>(p, begin, end, first, panel);
    } else {
      tiles<Element, 1>(p, begin, end, first, panel);
    }
  };
  if (!p.symmetric) return wide(0, p.rows);
  // The upper triangle: all rows above the panel, and in the panel's own rows the registers on and right of the
  // diagonal.
  const auto upto = [&](int64_t end) { return std::min(end, p.rows); };
  wide(0, upto(first + 16));
  const int64_t registers = (live + 15) / 16;
  for (int64_t v = 1; v < registers; ++v) {
    const int64_t begin = first + 16 * v, end = upto(begin + 16), column = first + 16 * v;
    switch (registers - v) {
      case 3:
        tiles<Element, 3>(p, begin, end, column, panel + 16 * v);
        break;
      case 2:
        tiles<Element, 2>(p, begin, end, column, panel + 16 * v);
        break;
      default:
        tiles<Element, 1>(p, begin, end, column, panel + 16 * v);
    }
  }
}

template <typename Element>
void mirror_of(void* out, int64_t stride, int64_t n, int64_t begin, int64_t end) {
  using Type = typename Element::Type;
  auto* values = static_cast<Type*>(out);
  for (int64_t block = begin; block < end; ++block) {
    const int64_t row = 16 * block, rows = std::min<int64_t>(16, n - row);
    for (int64_t column = row; column < n; column += 16) {
      const int64_t columns = std::min<int64_t>(16, n - column);
      __m512i t[16];
      for (int i = 0; i < 16; ++i) {
        t[i] = i < rows ? _mm512_castps_si512(Element::load(values + (row + i) * stride + column, lanes_below(columns)))
                        : _mm512_setzero_si512();
      }
      turn(t);
      for (int i = 0; i < columns; ++i) {
        // On the diagonal only what is below it: the upper half is what counts.
        const __mmask16 mask = column == row ? lanes_below(i) : lanes_below(rows);
        Element::store(values + (column + i) * stride + row, mask, _mm512_castsi512_ps(t[i]));
      }
    }
  }
}

template <typename Element>
constexpr ProductKernel kKernel = {panel_of<Element>, mirror_of<Element>};

}  // namespace
}  // namespace pacer::optim::detail
