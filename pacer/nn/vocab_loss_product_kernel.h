// The bf16 kernel behind product_f32, apart from torch's headers: its file is compiled for one processor only.
#pragma once

#include <cstdint>

namespace pacer::nn::detail {

// packed: panels of 32 rows, [panel][pair][row][2], missing rows 0. w: rows w_stride apart. pairs = K / 2.
struct Bf16ProductArguments {
  const uint16_t* packed;
  const uint16_t* w;
  int64_t w_stride;
  float* out;
  int64_t out_stride;
  int64_t rows, pairs;
  bool accumulate;
};

// Computes columns [begin, end) of out.
using Bf16Product = void (*)(const Bf16ProductArguments&, int64_t begin, int64_t end);

// Null when this processor has no bf16 dot product.
Bf16Product bf16_product_avx512();

}  // namespace pacer::nn::detail
