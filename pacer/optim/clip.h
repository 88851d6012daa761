// Clipping by the norm of all gradients together (Pascanu et al. 2013).
#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

namespace pacer::optim {

// L2 norm of all tensors as one vector, f64. The order of summation is fixed (blocks of a tensor, tensors by name), so
// the bits do not depend on threads. NaN or infinite when an element is: callers check it before they update anything.
//   gradients  f32, contiguous; undefined ones count as zero
double global_norm(const std::map<std::string, at::Tensor>& gradients);

// min(1, limit / (norm + 1e-6)); 1 when limit <= 0, which means no clipping.
double clip_coefficient(double norm, double limit);

// Name of the first tensor that holds NaN or infinity, empty when all are finite.
std::string first_not_finite(const std::map<std::string, at::Tensor>& tensors);

}  // namespace pacer::optim
