// The loops of the product on the way back (vocab_loss_product_kernel.h), compiled once per kind of factor; include
// only from vocab_loss_product_*.cpp. A Dot has the type of an element, how many of them make a unit of four bytes,
// copy(), which makes units of a row's elements, and pack(), which lays the units of 32 columns side by side.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "pacer/nn/vocab_loss_product_kernel.h"

namespace pacer::nn::detail {
namespace {

constexpr int64_t kBackColumns = 32;
constexpr int64_t kBackUnits = 192;  // of 32 columns: 24 kB
constexpr int kBackRows = 12;        // times two registers of columns: 24 sums

// out[N][columns] += g[N][unit] x w[unit][32], rows of g kBackUnits apart
template <typename Dot, int N>
void back_tile(const uint32_t* g, const uint32_t* w, int64_t units, float* out, int64_t stride, int64_t columns) {
  const auto low = static_cast<__mmask16>(columns >= 16 ? 0xffffu : (1u << columns) - 1u);
  const auto high = static_cast<__mmask16>(columns >= 32 ? 0xffffu : columns <= 16 ? 0u : (1u << (columns - 16)) - 1u);
  __m512 sum[N][2];
  for (int n = 0; n < N; ++n) {
    sum[n][0] = _mm512_maskz_loadu_ps(low, out + n * stride);
    sum[n][1] = _mm512_maskz_loadu_ps(high, out + n * stride + 16);
  }
  for (int64_t unit = 0; unit < units; ++unit) {
    const __m512i left = _mm512_load_si512(w + unit * kBackColumns);
    const __m512i right = _mm512_load_si512(w + unit * kBackColumns + 16);
    for (int n = 0; n < N; ++n) {
      const __m512i factor = _mm512_set1_epi32(static_cast<int>(g[n * kBackUnits + unit]));
      sum[n][0] = Dot::add(sum[n][0], left, factor);
      sum[n][1] = Dot::add(sum[n][1], right, factor);
    }
  }
  for (int n = 0; n < N; ++n) {
    _mm512_mask_storeu_ps(out + n * stride, low, sum[n][0]);
    _mm512_mask_storeu_ps(out + n * stride + 16, high, sum[n][1]);
  }
}

template <typename Dot, int N>
void any_back_tile(int rows, const uint32_t* g, const uint32_t* w, int64_t units, float* out, int64_t stride,
                   int64_t columns) {
  if constexpr (N > 0) {
    if (rows == N) return back_tile<Dot, N>(g, w, units, out, stride, columns);
    any_back_tile<Dot, N - 1>(rows, g, w, units, out, stride, columns);
  }
}

// Rows are divided evenly: a last tile of one row would cost as much as one of twelve.
struct RowTiles {
  explicit RowTiles(int64_t rows_) : rows(rows_), count((rows_ + kBackRows - 1) / kBackRows) {}
  int64_t begin(int64_t tile) const { return rows * tile / count; }
  int64_t rows, count;
};

// A share of the columns that come next: read by themselves they are too far apart for the processor to foresee.
inline void fetch_rows(const char* w, int64_t stride, int64_t begin, int64_t end, int64_t bytes) {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t byte = 0; byte < bytes; byte += 64) _mm_prefetch(w + row * stride + byte, _MM_HINT_T1);
  }
}

template <typename Dot>
void back_columns(const BackProductArguments& p, int64_t begin, int64_t end) {
  const RowTiles tiles(p.rows);
  const std::unique_ptr<uint32_t[]> gradients(new uint32_t[static_cast<size_t>(p.rows * kBackUnits)]);
  alignas(64) uint32_t weights[kBackUnits * kBackColumns];
  constexpr auto kItem = static_cast<int64_t>(sizeof(typename Dot::Element));
  for (int64_t first = 0; first < p.depth; first += kBackUnits * Dot::kPerUnit) {
    const int64_t elements = std::min(kBackUnits * Dot::kPerUnit, p.depth - first);
    const int64_t units = (elements + Dot::kPerUnit - 1) / Dot::kPerUnit;
    for (int64_t row = 0; row < p.rows; ++row) {
      Dot::copy(p.g + row * p.g_stride + first * kItem, elements, gradients.get() + row * kBackUnits);
    }
    for (int64_t column = begin; column < end; column += kBackColumns) {
      const int64_t columns = std::min(kBackColumns, end - column);
      Dot::pack(p.w + first * p.w_stride + column * kItem, p.w_stride, elements, columns, weights);
      const bool turn = column + kBackColumns >= end;  // the next columns are the first ones of the next block
      const int64_t next_row = turn ? first + elements : first, next_column = turn ? begin : column + kBackColumns;
      const int64_t next_rows = std::min(kBackUnits * Dot::kPerUnit, p.depth - next_row);
      const char* next = p.w + next_row * p.w_stride + next_column * kItem;
      const int64_t next_bytes = std::min(kBackColumns, end - next_column) * kItem;
      for (int64_t tile = 0; tile < tiles.count; ++tile) {
        const int64_t row = tiles.begin(tile);
        fetch_rows(next, p.w_stride, next_rows * tile / tiles.count, next_rows * (tile + 1) / tiles.count, next_bytes);
        any_back_tile<Dot, kBackRows>(static_cast<int>(tiles.begin(tile + 1) - row), gradients.get() + row * kBackUnits,
                                      weights, units, p.out + row * p.out_stride + column, p.out_stride, columns);
      }
    }
  }
}

}  // namespace
}  // namespace pacer::nn::detail
