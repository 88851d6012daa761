// Matrix products of a Newton-Schulz iteration on AVX-512, apart from torch's headers: their files are compiled for one
// processor only.
#pragma once

#include <cstdint>

namespace pacer::optim::detail {

// out = alpha a b + beta c with sums in f32 over one accumulator per result in the order of the depth, rounded once.
// All four have the element type of the kernel; strides are elements from one row to the next.
struct ProductArguments {
  const void* a;  // [rows, depth]
  int64_t a_stride;
  const void* b;  // [depth, columns], or [columns, depth] where b_turned
  int64_t b_stride;
  bool b_turned;
  const void* c;  // [rows, columns], or null
  int64_t c_stride;
  void* out;  // [rows, columns]; not one of the others
  int64_t out_stride;
  int64_t rows, columns, depth;
  float alpha, beta;
  bool symmetric;  // only the upper triangle is computed, with what shares a register with it; then mirror()
};

constexpr int64_t kPanelColumns = 64;

struct ProductKernel {
  // Columns [64 panel, 64 panel + 64) of out. workspace: 64-byte aligned, 256 bytes per 4 bytes of depth.
  void (*panel)(const ProductArguments&, int64_t panel, void* workspace);
  // Copies the upper triangle of [n, n] into the lower one, for blocks of 16 rows [begin, end) of the upper triangle.
  void (*mirror)(void* out, int64_t stride, int64_t n, int64_t begin, int64_t end);
};

// Null when this processor cannot.
const ProductKernel* f32_product_kernel();
const ProductKernel* bf16_product_kernel();

}  // namespace pacer::optim::detail
