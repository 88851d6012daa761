// Pacer's fused operators by those of the namespace `npu`, called through LibTorch's dispatcher: torch_npu's, or the
// simulator's.
#pragma once

#include <string>

#include "pacer/device/plugin.h"

namespace pacer::npu {

// What the dispatcher has now: call it when the library that declares the operators is loaded. An operator that is
// missing, or that wants an argument which is not known here, is left null; `note` says which and why, or stays empty.
device::FusedOperators find_fused_operators(std::string& note);

}  // namespace pacer::npu
