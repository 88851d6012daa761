// Shapes of an operator's results before it has run.
#pragma once

#include <optional>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace pacer::simnpu {

struct Shapes {
  torch::jit::Stack arguments;  // as Meta tensors; those of out= with the sizes that they must get
  torch::jit::Stack results;
};

// Asks the operator's Meta kernel, or a small table for operators that have one in Python only. Nothing when shapes
// depend on data. Throws what the Meta kernel throws: wrong shapes are told at the call.
std::optional<Shapes> infer_shapes(const c10::OperatorHandle& op, const torch::jit::Stack& arguments);

}  // namespace pacer::simnpu
