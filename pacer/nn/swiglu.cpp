#include "pacer/nn/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/silu.h>

#include "pacer/device/kernels.h"
#include "pacer/device/plugin.h"

namespace pacer::nn {

at::Tensor swiglu(const at::Tensor& gate_up) {
  if (auto* fused = device::fused_operators(gate_up.device()).swiglu) return fused(gate_up);
  const int64_t inner = gate_up.size(1) / 2;
  return at::silu(gate_up.slice(1, 0, inner)) * gate_up.slice(1, inner, 2 * inner);
}

}  // namespace pacer::nn
