// The loops under AdamW and the gradient norm, for contiguous f32 on the CPU.
#pragma once

#include <cstdint>

namespace pacer::optim {

// What one update needs, rounded to f32 once per tensor instead of once per element.
struct AdamWScalars {
  float gradient_scale;     // clip coefficient
  float decay;              // 1 - learning rate * weight decay
  float first_rate;         // 1 - beta1
  float second_keep;        // beta2
  float second_rate;        // 1 - beta2
  float second_correction;  // sqrt(1 - beta2^step)
  float epsilon;
  float step_size;  // learning rate / (1 - beta1^step)
};

// Elements [0, n) of one tensor. Every element is a fixed sequence of correctly rounded operations, so neither the
// place where threads divide the tensor nor the instruction set changes a bit.
void adamw_elements(float* weight, const float* gradient, float* first, float* second, int64_t n,
                    const AdamWScalars& scalars);

// Sum of squares in f64 over at most one block of a tensor, always in the same order.
double square_sum(const float* values, int64_t n);

}  // namespace pacer::optim
