// The gate of a feed-forward layer whose two matrices are one.
#pragma once

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// gate_up [R, 2F] -> [R, F]: silu(first half) * second half. Differentiable. One operator where the device brings it.
at::Tensor swiglu(const at::Tensor& gate_up);

}  // namespace pacer::nn
