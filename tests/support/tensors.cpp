#include "tests/support/tensors.h"

#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/norm.h>

#include "tests/support/files.h"

namespace pacer::test {
namespace {

at::ScalarType scalar_type(formats::DType dtype) {
  switch (dtype) {
    case formats::DType::F64:
      return at::kDouble;
    case formats::DType::F32:
      return at::kFloat;
    case formats::DType::F16:
      return at::kHalf;
    case formats::DType::BF16:
      return at::kBFloat16;
    case formats::DType::I64:
      return at::kLong;
    case formats::DType::I32:
      return at::kInt;
    case formats::DType::I16:
      return at::kShort;
    case formats::DType::I8:
      return at::kChar;
    case formats::DType::U8:
      return at::kByte;
    case formats::DType::BOOL:
      return at::kBool;
    default:
      throw std::runtime_error("golden tensor of an unexpected dtype");
  }
}

std::string shape_of(const at::Tensor& tensor) { return c10::str(tensor.sizes()); }

}  // namespace

at::Tensor to_tensor(const formats::TensorView& view) {
  at::Tensor tensor = at::empty(view.shape, at::TensorOptions().dtype(scalar_type(view.dtype)));
  if (!view.bytes.empty()) std::memcpy(tensor.data_ptr(), view.bytes.data(), view.bytes.size());
  return tensor;
}

GoldenTensors::GoldenTensors(const std::string& name) : source_(formats::SafetensorsFile::open(golden(name))) {}

at::Tensor GoldenTensors::operator[](const std::string& name) const { return to_tensor(source_->tensor(name)); }

::testing::AssertionResult close(const at::Tensor& a, const at::Tensor& b, double absolute, double relative) {
  if (a.sizes() != b.sizes())
    return ::testing::AssertionFailure() << "shapes " << shape_of(a) << " and " << shape_of(b);
  if (a.numel() == 0) return ::testing::AssertionSuccess();
  const at::Tensor x = a.detach().to(at::kDouble).flatten(), y = b.detach().to(at::kDouble).flatten();
  const at::Tensor excess = (x - y).abs() - (absolute + relative * y.abs());
  const int64_t worst = excess.argmax().item<int64_t>();
  if (excess[worst].item<double>() <= 0) return ::testing::AssertionSuccess();  // false for NaN, too
  return ::testing::AssertionFailure() << "at flat index " << worst << ": " << x[worst].item<double>() << " against "
                                       << y[worst].item<double>();
}

::testing::AssertionResult close_l2(const at::Tensor& a, const at::Tensor& b, double bound) {
  if (a.sizes() != b.sizes())
    return ::testing::AssertionFailure() << "shapes " << shape_of(a) << " and " << shape_of(b);
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double distance = (x - y).norm().item<double>() / y.norm().item<double>();
  if (distance <= bound) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "relative L2 distance " << distance << ", allowed " << bound;
}

::testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return ::testing::AssertionFailure() << "shape or dtype differs: " << shape_of(a) << " and " << shape_of(b);
  }
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  if (x.numel() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "bits differ; largest difference "
                                       << (x.to(at::kDouble) - y.to(at::kDouble)).abs().max().item<double>();
}

}  // namespace pacer::test
