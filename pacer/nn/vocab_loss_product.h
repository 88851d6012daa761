// Products with f32 results from bf16 factors: logits rounded to eight bits of mantissa would spoil a loss.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "pacer/nn/kernel_choice.h"

namespace pacer::nn {

// Rows of a that product_f32 multiplies side by side; a last group with fewer takes nearly as long.
constexpr int64_t kProductPanel = 32;

// out = a w^T, or out += a w^T.
//
//   out  [R, N]  f32, last dimension dense (rows may be apart), written in place
//   a    [R, K]  f32 or bf16, contiguous
//   w    [N, K]  dtype of a, last dimension dense
//
// Nothing is rounded below f32: with bf16 factors every product is exact and the sum over k runs in f32. On processors
// with AVX-512 by one accumulator per result, in an order that does not depend on R or N; elsewhere by the library.
// way: how bf16 is multiplied there. Not differentiable. Throws Error{bug} on shapes.
void product_f32(const at::Tensor& out, const at::Tensor& a, const at::Tensor& w, bool accumulate = false,
                 Bf16Products way = bf16_products());

// The way back, out = g w.
//
//   out  [R, N]  f32, contiguous
//   g    [R, K]  f32 or bf16, last dimension dense (rows may be apart)
//   w    [K, N]  dtype of g, last dimension dense
//
// Sums run in f32 over all of K, in an order that does not depend on R, N or the number of threads where the kernels
// are ours (see above). Not differentiable. Throws Error{bug} on shapes.
void back_product_f32(const at::Tensor& out, const at::Tensor& g, const at::Tensor& w,
                      Bf16Products way = bf16_products());

}  // namespace pacer::nn
