// Root-mean-square normalisation (Zhang and Sennrich 2019, eq. 4) as Llama and Qwen use it.
#pragma once

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// y = x / sqrt(mean(x^2) + epsilon) * weight, over the last dimension.
//
//   x        [..., H]  f32 or bf16
//   weight   [H]       dtype of x
//   returns  [..., H]  dtype of x, contiguous
//
// Mean and quotient are f32 in every dtype; the quotient is rounded to the dtype of x before the weight is applied, as
// the published checkpoints were trained. A row is reduced alone and in a fixed order: its bits depend neither on its
// neighbours nor on the number of threads. Differentiable in x and weight; the backward keeps one f32 per row.
//
// Throws Error{format} when shapes or dtypes do not fit.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);

}  // namespace pacer::nn
