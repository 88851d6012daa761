// The kernels behind product_f32, apart from torch's headers: their files are compiled for one processor only.
#pragma once

#include <cstdint>

namespace pacer::nn::detail {

// Factors are read in units of four bytes: an f32, or a pair of bf16 that are neighbours along k.
//   packed  panels of 32 rows of a: [panel][unit][row], missing rows 0
//   w       rows w_stride bytes apart
struct ProductArguments {
  const uint32_t* packed;
  const char* w;
  int64_t w_stride;
  float* out;
  int64_t out_stride;
  int64_t rows, units;
  bool accumulate;
};

// Computes columns [begin, end) of out.
using Product = void (*)(const ProductArguments&, int64_t begin, int64_t end);

// The way back, out += g w for some columns of w. Columns lie across the lanes; each block of k is laid out once so
// that all rows of g read it from the first-level cache.
//   g    rows g_stride bytes apart, `depth` elements of a factor's type
//   w    [depth] rows w_stride bytes apart
//   out  [rows] f32, out_stride apart
struct BackProductArguments {
  const char* g;
  int64_t g_stride;
  const char* w;
  int64_t w_stride;
  float* out;
  int64_t out_stride;
  int64_t rows, depth;
};
using BackProduct = void (*)(const BackProductArguments&, int64_t begin, int64_t end);

// Null when this processor cannot. Of bf16 there are two ways back: by the instruction for it, and by those for f32 on
// factors that are widened when they are packed. Forward a widened copy goes through f32_product_avx512.
BackProduct f32_back_product_avx512();
BackProduct wide_bf16_back_product_avx512();
BackProduct bf16_back_product_avx512();
Product f32_product_avx512();
void widen_bf16_avx512(const char* from, int64_t count, float* to);
Product bf16_product_avx512();

}  // namespace pacer::nn::detail
