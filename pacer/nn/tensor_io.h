// Bytes of tensor files as at::Tensor, and back.
#pragma once

#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "pacer/formats/tensor_source.h"

namespace pacer::nn {

// Throws Error{format} for an element type that torch does not hold.
at::ScalarType scalar_type(formats::DType dtype, const std::string& place);
formats::DType file_dtype(at::ScalarType dtype);

// The tensor `name` of `source` in `dtype`, contiguous. When the file has that dtype the memory is the file's map and
// nothing is copied (the tensor keeps the source alive and must not be written to); otherwise it is a converted copy.
at::Tensor load_tensor(const std::shared_ptr<const formats::TensorSource>& source, const std::string& name,
                       at::ScalarType dtype);

// A copy in the file's own dtype.
at::Tensor copy_tensor(const formats::TensorView& view, const std::string& place);

// The bytes of a contiguous CPU tensor for a writer; valid while the tensor lives. Throws Error{bug} otherwise.
formats::TensorView view_of(const at::Tensor& tensor);

}  // namespace pacer::nn
