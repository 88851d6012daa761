// What the real device refuses, each rule behind a switch of settings.h and in the words of the real message.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::simnpu {

// An operator that is about to be launched. Tensors are those on the device, results of unknown shape left out.
struct OperatorCall {
  const std::string& name;  // "aten::mm.out"
  std::vector<at::Tensor> arguments;
  std::vector<at::Tensor> results;
};

// Throws for float64 tensors, tensors without elements, int64 indices, logsumexp in bfloat16,
// reductions over more columns than reduced_columns allows.
void check_rules(const OperatorCall& call);

void refuse_event_timing();
void check_gru(at::ScalarType dtype);

// function: "HcclAllReduce". `reduces`: the collective adds or compares.
void check_collective(const std::string& function, at::ScalarType dtype, bool reduces, int ranks);

}  // namespace pacer::simnpu
