#include "pacer/optim/clip.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/optim/kernels.h"

namespace pacer::optim {
namespace {

constexpr int64_t kBlock = 1 << 15;  // elements that one thread sums; part of the order, so never a setting

double square_sum_of(const std::string& name, const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
    throw Error(ErrorKind::bug, "global_norm: the gradient of " + name + " is not contiguous f32");
  }
  // Devices without float64 sum in f32.
  if (!device::in_host_memory(tensor)) return tensor.square().sum().item<double>();
  const int64_t blocks = (tensor.numel() + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  const float* values = tensor.const_data_ptr<float>();
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block * kBlock;
      sums[static_cast<size_t>(block)] = square_sum(values + start, std::min(kBlock, tensor.numel() - start));
    }
  });
  double sum = 0;
  for (const double block : sums) sum += block;
  return sum;
}

}  // namespace

double global_norm(const std::map<std::string, at::Tensor>& gradients) {
  double sum = 0;
  for (const auto& [name, gradient] : gradients) {
    if (gradient.defined()) sum += square_sum_of(name, gradient);
  }
  return std::sqrt(sum);
}

double clip_coefficient(double norm, double limit) { return limit <= 0 ? 1.0 : std::min(1.0, limit / (norm + 1e-6)); }

std::string first_not_finite(const std::map<std::string, at::Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.defined() && !at::isfinite(tensor).all().item<bool>()) return name;
  }
  return {};
}

}  // namespace pacer::optim
