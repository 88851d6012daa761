// AdamW (Loshchilov and Hutter 2019, algorithm 2) on masters.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pacer::optim {

struct AdamWOptions {
  double beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;  // decoupled: the weight shrinks by learning rate * weight_decay in each step
};

// One step of one tensor, in place. With g = gradient_scale * gradient and n = step:
//
//   weight *= 1 - rate * decay;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2
//   weight -= rate / (1 - beta1^n) * m / (sqrt(v) / sqrt(1 - beta2^n) + epsilon)
//
//   weight    f32 or bf16, the master  gradient  f32, bf16 or f16, same shape, unchanged
//   first     dtype of weight, m       second    dtype of weight, v; both zero before the first step
//   largest   undefined, or AMSGrad's running maximum of v (Reddi et al. 2018), which then takes the place of v below
//   step      1 for the first step; steps that the tensor skipped do not count
//   rate      learning rate of this step
//
// Arithmetic is f32 and rounded once into bf16 tensors. A tensor without elements, as an empty shard, is left as it is.
// On the CPU the bits depend on nothing but these values; other devices use the fused kernel of the library.
// Throws Error{bug} when dtypes, shapes or devices differ or step < 1.
void adamw_update(at::Tensor& weight, const at::Tensor& gradient, double gradient_scale, at::Tensor& first,
                  at::Tensor& second, int64_t step, double rate, const AdamWOptions& options,
                  const at::Tensor& largest = {});

}  // namespace pacer::optim
