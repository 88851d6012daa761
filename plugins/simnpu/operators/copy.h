// Copies between the host and devices, and between devices.
#pragma once

#include <ATen/core/Tensor.h>

namespace pacer::simnpu {

// Any dtypes and strides. To and from the host it returns when the copy is done, unless the host's side is pinned and
// non_blocking: then the pinned buffer is recorded on the stream. Between devices the streams wait for each other.
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to);
at::Scalar local_scalar_dense(const at::Tensor& tensor);  // waits for the current stream

}  // namespace pacer::simnpu
