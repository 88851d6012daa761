// AdamW (Loshchilov and Hutter 2019, algorithm 2) on f32 masters.
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
//   weight    f32, the master        gradient  f32, same shape, unchanged
//   first     f32, m                 second    f32, v; both zero before the first step
//   step      1 for the first step   rate      learning rate of this step
//
// On the CPU the bits depend on nothing but these values; other devices use the fused kernel of the library.
// Throws Error{bug} when dtypes, shapes or devices differ or step < 1.
void adamw_update(at::Tensor& weight, const at::Tensor& gradient, double gradient_scale, at::Tensor& first,
                  at::Tensor& second, int64_t step, double rate, const AdamWOptions& options);

}  // namespace pacer::optim
