#include "pacer/optim/clip_buckets.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/optim/exact_norm.h"

namespace pacer::optim {
namespace {

bool is_maximum(double p) { return p == kMaximumNorm; }

void check_power(double p) {
  if (p >= 1) return;  // false for not-a-number
  throw Error(ErrorKind::usage, "gradient norm of order " + std::to_string(p) + ", allowed: 1 or more, or infinity");
}

// Of one tensor, f32 without dimensions.
at::Tensor power_of(const ClipTensor& tensor, double p, const at::Device& device) {
  const at::Tensor& gradient = tensor.gradient;
  if (!at::isFloatingType(gradient.scalar_type()) || gradient.device() != device || tensor.multiplicity < 1) {
    throw Error(ErrorKind::bug, c10::str("clipping: ", tensor.name, " is ", gradient.scalar_type(), " on ",
                                         gradient.device(), " with multiplicity ", tensor.multiplicity,
                                         ", expected floating point on ", device, " and 1 or more"));
  }
  const at::Tensor values = gradient.detach().to(at::kFloat).contiguous();
  if (is_maximum(p)) return values.abs().amax();
  // The blocks of a root of the sum of squares are those of the exact mode; other orders are rare enough to be plain.
  const at::Tensor sum = p == 2 ? tree_sum(block_square_sums(values))
                                : tree_sum((p == 1 ? values.abs() : values.abs().pow(p)).reshape({-1}));
  return tensor.multiplicity == 1 ? sum : sum / static_cast<double>(tensor.multiplicity);
}

at::Tensor combine(const at::Tensor& a, const at::Tensor& b, double p) {
  return is_maximum(p) ? at::maximum(a, b) : a + b;
}

at::Tensor root(const at::Tensor& power, double p) {
  if (is_maximum(p) || p == 1) return power;
  return p == 2 ? power.sqrt() : power.pow(1.0 / p);
}

// Where the entries are that ranks share; made on the host and copied, nothing is read back.
at::Tensor shared_mask(const std::vector<ClipBucket>& buckets, const at::Device& device) {
  at::Tensor mask = at::empty({static_cast<int64_t>(buckets.size())}, at::kBool);
  bool* values = mask.mutable_data_ptr<bool>();
  for (size_t i = 0; i < buckets.size(); ++i) values[i] = buckets[i].reduce;
  return mask.to(device);
}

}  // namespace

at::Tensor local_powers(const std::vector<ClipBucket>& buckets, double p, const at::Device& device) {
  check_power(p);
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  std::vector<at::Tensor> powers;
  for (const ClipBucket& bucket : buckets) {
    at::Tensor power = at::zeros({}, options);
    for (const ClipTensor& tensor : bucket.tensors) {
      if (!tensor.gradient.defined() || tensor.gradient.numel() == 0) continue;
      power = combine(power, power_of(tensor, p, device), p);
    }
    powers.push_back(power);
  }
  return powers.empty() ? at::zeros({0}, options) : at::stack(powers);
}

at::Tensor shared_part(const at::Tensor& powers, const std::vector<ClipBucket>& buckets) {
  return powers.masked_fill(shared_mask(buckets, powers.device()).logical_not(), 0);
}

at::Tensor put_back(const at::Tensor& reduced, const at::Tensor& powers, const std::vector<ClipBucket>& buckets) {
  return reduced.where(shared_mask(buckets, powers.device()), powers);
}

ClipStatistics clip_statistics(const at::Tensor& power, double p, std::optional<double> limit) {
  check_power(p);
  if (limit && !(*limit >= 0)) {
    throw Error(ErrorKind::usage, "longest gradient norm " + std::to_string(*limit) + ", allowed: 0 or more");
  }
  ClipStatistics statistics;
  statistics.total_norm = root(power, p);
  const at::Tensor finite = at::isfinite(statistics.total_norm);
  statistics.found_inf = finite.logical_not();
  if (limit) {
    statistics.coefficient = at::clamp(*limit / (statistics.total_norm + 1e-6), std::nullopt, 1.0);
    statistics.clipped = finite.logical_and(statistics.total_norm > *limit);
  } else {
    statistics.coefficient = at::ones({}, power.options());
    statistics.clipped = at::zeros({}, power.options().dtype(at::kBool));
  }
  return statistics;
}

at::Tensor combined_norm(const at::Tensor& powers, double p) {
  if (powers.size(0) == 0) return at::zeros({}, powers.options());
  return root(is_maximum(p) ? powers.amax() : tree_sum(powers), p);
}

void scale_gradients(const ClipBucket& bucket, const at::Tensor& coefficient) {
  for (const ClipTensor& tensor : bucket.tensors) {
    if (tensor.gradient.defined()) at::Tensor(tensor.gradient).mul_(coefficient);
  }
}

}  // namespace pacer::optim
