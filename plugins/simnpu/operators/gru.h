// The fused GRU cell of LibTorch's at::gru, which the device refuses in bfloat16.
#pragma once

#include <torch/library.h>

namespace pacer::simnpu {

void add_gru(torch::Library& aten);  // to the device's kernels

}  // namespace pacer::simnpu
