// What the launcher needs to know of an operator, read from its schema once.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>

namespace pacer::simnpu {

struct OperatorInfo {
  const std::string* name;  // "aten::add.out", interned
  bool has_cpu_kernel;
  bool random;                // draws numbers: runs in the order of the host's calls
  bool returns_values;        // numbers and not only tensors: the host waits for them
  bool allocates;             // some result is a new tensor
  bool returns_view;          // some result is an alias without being written: no kernel at all
  int generator;              // index of the generator argument, -1: none
  std::vector<bool> written;  // per argument
  std::vector<bool> is_out;   // per argument: out=, which a kernel may resize
  std::vector<int> returned;  // per result: the argument that it is, -1: a new value
};

const OperatorInfo& info_of(const c10::OperatorHandle& op);

}  // namespace pacer::simnpu
