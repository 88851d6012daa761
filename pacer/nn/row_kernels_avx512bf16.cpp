#include "pacer/nn/row_vector_avx512.h"
//
#include "pacer/nn/row_kernel_sets.h"
#include "pacer/nn/row_kernels_body.h"

namespace {

// Two products per lane and instruction; the pair of x is broadcast as one 32-bit element.
template <Fetch kFetch, int kRows, int kVectors>
void tile(const uint16_t* x, int64_t x_stride, const uint16_t* panel, int64_t steps, int64_t lanes, bool add, float* y,
          int64_t y_stride) {
  __m512 acc[kRows][kVectors];
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) {
      acc[m][v] = add ? _mm512_loadu_ps(y + m * y_stride + 16 * v) : _mm512_setzero_ps();
    }
  }
  for (int64_t k = 0; k < steps; ++k, panel += 2 * lanes) {
    __m512bh w[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      w[v] = (__m512bh)_mm512_loadu_si512(panel + 32 * v);
      fetch_ahead<kFetch, kRows>(panel + 32 * v);
    }
    for (int m = 0; m < kRows; ++m) {
      float pair;
      __builtin_memcpy(&pair, x + m * x_stride + 2 * k, sizeof pair);
      const __m512bh value = (__m512bh)_mm512_set1_ps(pair);
      for (int v = 0; v < kVectors; ++v) acc[m][v] = _mm512_dpbf16_ps(acc[m][v], w[v], value);
    }
  }
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(y + m * y_stride + 16 * v, acc[m][v]);
  }
}

}  // namespace

namespace pacer::nn {
namespace {

// Eight rows by four vectors spill a little and still beat eight by two: fewer broadcasts per product.
constexpr RowKernels<uint16_t> kBf16 = table<uint16_t, uint16_t, 4, 8>("avx512-bf16");

}  // namespace

const RowKernels<uint16_t>* const kAvx512DotBf16 = &kBf16;

}  // namespace pacer::nn
