// Finding and starting torch_npu's library, of which there are two builds.
#pragma once

#include "pacer/device/plugin.h"

namespace pacer::npu {

// $PACER_TORCH_NPU, else libtorch_npu.so where the dynamic loader looks. The native build (built from torch_npu's
// sources for LibTorch) is started by its own function. The wheel needs Python in the process: its library is
// $PACER_PYTHON_LIBRARY, else libpython3.*.so where the loader looks, and it must be able to import torch_npu.
//
// Absent: no such library. Throws std::runtime_error for one that is there: the loader's message, or what starting it
// said, with the step that failed.
//
// operators: filled as soon as the library is open, with what it declares; the note says what of it cannot be used.
device::Loaded load_torch_npu(device::FusedOperators& operators);

}  // namespace pacer::npu
