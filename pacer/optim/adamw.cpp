#include "pacer/optim/adamw.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/optim/kernels.h"

namespace pacer::optim {
namespace {

void check(const at::Tensor& weight, const at::Tensor& other, const char* name) {
  if (other.defined() && other.scalar_type() == weight.scalar_type() && other.sizes() == weight.sizes() &&
      other.device() == weight.device() && other.is_contiguous()) {
    return;
  }
  throw Error(ErrorKind::bug, std::string("adamw_update: ") + name +
                                  " is not a contiguous tensor of the weight's dtype, shape and device");
}

void check_dtypes(const at::Tensor& weight, const at::Tensor& gradient) {
  if (weight.scalar_type() != at::kFloat && weight.scalar_type() != at::kBFloat16) {
    throw Error(ErrorKind::bug, c10::str("adamw_update: a weight in ", weight.scalar_type(), ", allowed: f32, bf16"));
  }
  if (!gradient.defined() || !at::isFloatingType(gradient.scalar_type()) || gradient.sizes() != weight.sizes() ||
      gradient.device() != weight.device()) {
    throw Error(ErrorKind::bug,
                "adamw_update: the gradient is not a floating-point tensor of the weight's shape and device");
  }
}

AdamWScalars scalars_of(double gradient_scale, int64_t step, double rate, const AdamWOptions& options) {
  const double n = static_cast<double>(step);
  AdamWScalars scalars{};
  scalars.gradient_scale = static_cast<float>(gradient_scale);
  scalars.decay = static_cast<float>(1.0 - rate * options.weight_decay);
  scalars.first_rate = static_cast<float>(1.0 - options.beta1);
  scalars.second_keep = static_cast<float>(options.beta2);
  scalars.second_rate = static_cast<float>(1.0 - options.beta2);
  scalars.second_correction = static_cast<float>(std::sqrt(1.0 - std::pow(options.beta2, n)));
  scalars.epsilon = static_cast<float>(options.epsilon);
  scalars.step_size = static_cast<float>(rate / (1.0 - std::pow(options.beta1, n)));
  return scalars;
}

// All f32 and contiguous.
void update_cpu(at::Tensor& weight, const at::Tensor& gradient, at::Tensor& first, at::Tensor& second,
                at::Tensor& largest, const AdamWScalars& scalars) {
  float* w = weight.mutable_data_ptr<float>();
  const float* g = gradient.const_data_ptr<float>();
  float* m = first.mutable_data_ptr<float>();
  float* v = second.mutable_data_ptr<float>();
  float* top = largest.defined() ? largest.mutable_data_ptr<float>() : nullptr;
  constexpr int64_t kGrain = 1 << 15;  // below this a second thread costs more than it saves
  at::parallel_for(0, weight.numel(), kGrain, [&](int64_t begin, int64_t end) {
    if (top == nullptr) {
      adamw_elements(w + begin, g + begin, m + begin, v + begin, end - begin, scalars);
    } else {
      adamw_elements_amsgrad(w + begin, g + begin, m + begin, v + begin, top + begin, end - begin, scalars);
    }
  });
}

}  // namespace

void adamw_update(at::Tensor& weight, const at::Tensor& gradient, double gradient_scale, at::Tensor& first,
                  at::Tensor& second, int64_t step, double rate, const AdamWOptions& options,
                  const at::Tensor& largest) {
  check(weight, weight, "weight");
  check_dtypes(weight, gradient);
  check(weight, first, "first moment");
  check(weight, second, "second moment");
  if (largest.defined()) check(weight, largest, "largest second moment");
  if (step < 1) throw Error(ErrorKind::bug, "adamw_update: step " + std::to_string(step) + ", the first one is 1");
  if (weight.numel() == 0) return;
  if (device::in_host_memory(weight)) {
    const AdamWScalars scalars = scalars_of(gradient_scale, step, rate, options);
    const auto wide = [](const at::Tensor& t) { return t.defined() ? t.detach().to(at::kFloat) : t; };
    at::Tensor w = wide(weight), m = wide(first), v = wide(second), top = wide(largest);  // themselves when f32
    update_cpu(w, wide(gradient).contiguous(), m, v, top, scalars);
    if (weight.scalar_type() == at::kFloat) return;
    weight.detach().copy_(w), first.copy_(m), second.copy_(v);
    if (largest.defined()) largest.copy_(top);
    return;
  }
  const at::Tensor count = at::full({}, static_cast<double>(step), weight.options().dtype(at::kFloat));
  const at::Tensor scaled = (gradient * gradient_scale).to(weight.scalar_type());
  at::Tensor detached = weight.detach();
  std::vector<at::Tensor> tops;
  if (largest.defined()) tops.push_back(largest);
  at::_fused_adamw_(detached, scaled, first, second, tops, count, rate, options.beta1, options.beta2,
                    options.weight_decay, options.epsilon, /*amsgrad=*/largest.defined(), /*maximize=*/false);
}

}  // namespace pacer::optim
