// What a queued kernel may keep of a tensor: address and geometry, never the tensor. Holding tensors would hide every
// missing record_stream.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include "plugins/simnpu/memory/history.h"

namespace pacer::simnpu {

bool on_device(const at::Tensor& tensor);  // false for an undefined one

class View {
 public:
  explicit View(const at::Tensor& tensor);

  // As a CPU tensor over the worker's mapping; for workers only.
  at::Tensor tensor() const;
  Access access(bool write) const;

 private:
  uintptr_t address_;
  std::vector<int64_t> sizes_, strides_;
  at::ScalarType dtype_;
  size_t element_bytes_;
  bool is_wrapped_number_;  // a Python-like scalar that does not take part in type promotion
};

// Gives a storage memory of another size with the old contents, as resize_ of a tensor does.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace pacer::simnpu
