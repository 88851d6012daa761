// The fused operators of the npu namespace, with the schemas of the real operator library (op-plugin), and what the
// door offers of them.
#pragma once

#include <torch/library.h>

#include "pacer/device/plugin.h"

namespace pacer::simnpu {

void register_fused_operators();  // once per process
void add_fused_attention(torch::Library& schemas, torch::Library& kernels, torch::Library& autograd);
// npu_fusion_attention in the form of the door (device::FusedOperators::attention).
at::Tensor fused_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& visible, double scale);

const device::FusedOperators* fused_operators();

}  // namespace pacer::simnpu
