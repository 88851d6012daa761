// Linear layers: the library's product for many rows, our own row-streaming product for few.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// y = x W^T + bias, by the fastest library product of this processor; for training and long forwards.
//
//   x        [..., K]  f32 or bf16
//   weight   [N, K]    dtype of x
//   bias     [N]       dtype of x, or undefined
//   returns  [..., N]  dtype of x
//
// Differentiable in all three. The bits of a row may depend on the number of rows. Throws Error{format} on shapes.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});

}  // namespace pacer::nn
