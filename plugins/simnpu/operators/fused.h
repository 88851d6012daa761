// The fused operators of the npu namespace, declared as torch_npu declares them. The door offers them through the code
// of the real device's plugin (plugins/npu/fused.h).
#pragma once

#include <torch/library.h>

namespace pacer::simnpu {

void register_fused_operators();  // once per process
void add_fused_attention(torch::Library& schemas, torch::Library& kernels, torch::Library& autograd);

}  // namespace pacer::simnpu
