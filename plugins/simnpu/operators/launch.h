// Launching kernels from operator code.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "plugins/simnpu/memory/device_allocator.h"
#include "plugins/simnpu/memory/history.h"
#include "plugins/simnpu/operators/view.h"
#include "plugins/simnpu/runtime/runtime.h"

namespace pacer::simnpu {

// Names the operator that this thread is in, for allocations and faults.
class OperatorScope {
 public:
  explicit OperatorScope(const std::string* name) : outer_(current_operator) { current_operator = name; }
  ~OperatorScope() { current_operator = outer_; }
  OperatorScope(const OperatorScope&) = delete;
  OperatorScope& operator=(const OperatorScope&) = delete;

 private:
  const std::string* outer_;
};

// On the device's current stream.
inline void launch(c10::Device device, const std::string* name, std::vector<Access> accesses,
                   std::function<void()> body) {
  Runtime& runtime = Runtime::get();
  runtime.launch(runtime.current_stream(device.index()), {name, std::move(accesses), std::move(body)});
}

// A kernel of the plugin's own: reads `inputs`, writes all of `outputs`. On the worker `body` gets them as CPU tensors;
// an undefined input stays undefined. Checks the device's rules.
using KernelBody = std::function<void(const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs)>;
void launch_kernel(const char* name, const std::vector<at::Tensor>& inputs, const std::vector<at::Tensor>& outputs,
                   KernelBody body);

}  // namespace pacer::simnpu
