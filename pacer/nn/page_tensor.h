// Tensors that live long among others that come and go.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// Zeros, on pages of their own that go back to the system with the tensor. From the heap, a tensor that stays keeps
// everything that was freed around it resident: training with kept features then takes twice the memory that it uses.
// Rows that are never written take no memory. Below 256 KB an ordinary tensor, because mappings are limited in number.
// Throws Error{resources} without memory.
at::Tensor page_tensor(const std::vector<int64_t>& sizes, at::ScalarType dtype);

}  // namespace pacer::nn
