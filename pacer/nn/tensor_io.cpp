#include "pacer/nn/tensor_io.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"

namespace pacer::nn {
namespace {

constexpr std::pair<formats::DType, at::ScalarType> kTypes[] = {
    {formats::DType::F64, at::kDouble},
    {formats::DType::F32, at::kFloat},
    {formats::DType::F16, at::kHalf},
    {formats::DType::BF16, at::kBFloat16},
    {formats::DType::F8_E4M3, at::kFloat8_e4m3fn},
    {formats::DType::F8_E5M2, at::kFloat8_e5m2},
    {formats::DType::I64, at::kLong},
    {formats::DType::I32, at::kInt},
    {formats::DType::I16, at::kShort},
    {formats::DType::I8, at::kChar},
    {formats::DType::U64, at::kUInt64},
    {formats::DType::U32, at::kUInt32},
    {formats::DType::U16, at::kUInt16},
    {formats::DType::U8, at::kByte},
    {formats::DType::BOOL, at::kBool},
};

// Writers of safetensors may leave data at odd offsets; vector loads and torch want whole elements.
bool aligned(const formats::TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.bytes.data()) % formats::item_size(view.dtype) == 0;
}

}  // namespace

at::ScalarType scalar_type(formats::DType dtype, const std::string& place) {
  for (const auto& [file, torch] : kTypes) {
    if (file == dtype) return torch;
  }
  throw Error(ErrorKind::format,
              place + ": element type " + std::string(formats::dtype_name(dtype)) + " cannot be held in a tensor");
}

formats::DType file_dtype(at::ScalarType dtype) {
  for (const auto& [file, torch] : kTypes) {
    if (torch == dtype) return file;
  }
  throw Error(ErrorKind::bug, std::string("no file element type for ") + toString(dtype));
}

at::Tensor copy_tensor(const formats::TensorView& view, const std::string& place) {
  at::Tensor tensor = at::empty(view.shape, at::TensorOptions().dtype(scalar_type(view.dtype, place)));
  if (view.bytes.size() != tensor.nbytes()) {
    throw Error(ErrorKind::format, place + ": " + std::to_string(view.bytes.size()) + " bytes for a tensor of " +
                                       std::to_string(tensor.nbytes()));
  }
  if (!view.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

at::Tensor load_tensor(const std::shared_ptr<const formats::TensorSource>& source, const std::string& name,
                       at::ScalarType dtype) {
  const formats::TensorView view = source->tensor(name);
  const std::string place = source->place() + ": tensor " + name;
  const at::ScalarType stored = scalar_type(view.dtype, place);
  if (view.bytes.empty() || !aligned(view)) return copy_tensor(view, place).to(dtype);
  // from_blob wants a mutable pointer; the contract above forbids writing.
  const at::Tensor mapped = at::from_blob(
      const_cast<std::byte*>(view.bytes.data()), view.shape, [source](void*) {}, at::TensorOptions().dtype(stored));
  return mapped.to(dtype);
}

formats::TensorView view_of(const at::Tensor& tensor) {
  if (!device::in_host_memory(tensor) || !tensor.is_contiguous()) {
    throw Error(ErrorKind::bug, "view_of: the tensor is not contiguous in host memory");
  }
  return {file_dtype(tensor.scalar_type()),
          tensor.sizes().vec(),
          {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

}  // namespace pacer::nn
