// What the tests of the row kernels share: both element types, and every instruction set that this machine has.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace pacer::nn {

template <typename T>
constexpr at::ScalarType kRowType = sizeof(T) == 2 ? at::kBFloat16 : at::kFloat;

template <typename T>
const T* row_data(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}
template <typename T>
T* row_data_to_write(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

using RowTypes = ::testing::Types<float, uint16_t>;

}  // namespace pacer::nn
