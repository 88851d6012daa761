// Runs LibTorch's CPU kernels as kernels of the simulated device.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace pacer::simnpu {

// The boxed kernel of every operator that has no own one. Shapes come from the operator's Meta kernel at the call, the
// CPU kernel runs on the stream later. Operators whose result shapes depend on data, that give numbers to the host, or
// that draw random numbers wait for the device.
void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack);

void register_operators();  // once per process

}  // namespace pacer::simnpu
