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

// The same with `largest`, the maximum of all second moments so far, in place of the second moment in the denominator
// (AMSGrad, Reddi et al. 2018).
void adamw_elements_amsgrad(float* weight, const float* gradient, float* first, float* second, float* largest,
                            int64_t n, const AdamWScalars& scalars);

// Muon's momentum, with g = gradient_scale * gradient: momentum <- keep momentum + add g, then
// update = gradient_share g + momentum_share momentum.
struct MomentumScalars {
  float gradient_scale, keep, add, gradient_share, momentum_share;
};
void momentum_elements(float* momentum, const float* gradient, float* update, int64_t n,
                       const MomentumScalars& scalars);

// weight <- decay weight - step direction
void decayed_step(float* weight, const float* direction, int64_t n, float decay, float step);

// The largest |value|, not-a-number when one is; 0 for none.
float largest_magnitude_of(const float* values, int64_t n);

// Sum of (value / divisor)^2 in f64, always in the same order; and (value / divisor) * factor, in f32 or rounded to
// bf16.
double quotient_square_sum(const float* values, int64_t n, float divisor);
void normalised_f32(const float* values, float* out, int64_t n, float divisor, float factor);
void normalised_bf16(const float* values, uint16_t* out, int64_t n, float divisor, float factor);

// Sums of squares of blocks of 1,024 values (kNormBlock; the last one may be shorter), f32: the squares of a block
// padded with zeros are folded by halves, x[i] + x[i + 512], x[i] + x[i + 256], and so on, so that any device can do
// the same.
constexpr int64_t kNormBlock = 1024;
void block_square_sums_of(const float* values, int64_t n, float* sums);

// Sum of squares in f64 over at most one block of a tensor, always in the same order.
double square_sum(const float* values, int64_t n);

}  // namespace pacer::optim
