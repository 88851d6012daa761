// Index tensors for operators of a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

namespace pacer::device {

// int64, or int32 where the back end's operators accept nothing wider.
at::ScalarType index_dtype(c10::Device device);

// numbers: i64, in host memory or on the device, below 2^31 and at least 0. The same on the device in its index dtype;
// the tensor itself when nothing is to be done.
at::Tensor as_indices(const at::Tensor& numbers, c10::Device device);

}  // namespace pacer::device
