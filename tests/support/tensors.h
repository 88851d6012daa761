// Golden tensors as at::Tensor and the comparisons that tests/golden/README.md defines.
#pragma once

#include <string>

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

#include "pacer/formats/tensor_source.h"

namespace pacer::test {

// A safetensors file of tests/golden; tensors are copies, so they outlive the file.
class GoldenTensors {
 public:
  explicit GoldenTensors(const std::string& name);  // "llama_tiny/default/expected.safetensors"
  bool has(const std::string& name) const { return source_->has(name); }
  at::Tensor operator[](const std::string& name) const;
  std::vector<std::string> names() const { return source_->names(); }

 private:
  std::shared_ptr<formats::TensorSource> source_;
};

at::Tensor to_tensor(const formats::TensorView& view);  // a copy

// |a - b| <= absolute + relative * |b| everywhere; the message shows the worst place.
::testing::AssertionResult close(const at::Tensor& a, const at::Tensor& b, double absolute = 1e-4,
                                 double relative = 1e-4);
// ||a - b|| / ||b|| <= bound, in f64.
::testing::AssertionResult close_l2(const at::Tensor& a, const at::Tensor& b, double bound);
::testing::AssertionResult same_bits(const at::Tensor& a, const at::Tensor& b);

}  // namespace pacer::test
