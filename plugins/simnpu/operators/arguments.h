// Arguments of an operator on their way from the host's call to the worker.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include "plugins/simnpu/operators/view.h"

namespace pacer::simnpu {

// The value with every tensor in it, also in lists, replaced by f's. Undefined tensors and absent ones stay.
c10::IValue map_tensors(const c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& f);
void for_each_tensor(const c10::IValue& value, const std::function<void(const at::Tensor&)>& f);

// An argument without its device tensors. CPU scalars are copied, other values kept.
class Frozen {
 public:
  explicit Frozen(const c10::IValue& value);
  c10::IValue thaw() const;  // on the worker: device tensors as CPU tensors over the same memory

 private:
  c10::IValue shape_;  // the value with device tensors undefined
  std::vector<std::optional<View>> views_;
};

// Same geometry, no memory.
at::Tensor meta_of(const at::Tensor& tensor);

}  // namespace pacer::simnpu
