#include "pacer/optim/adamw.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/optim/kernels.h"

namespace pacer::optim {
namespace {

void check(const at::Tensor& weight, const at::Tensor& other, const char* name) {
  if (other.defined() && other.scalar_type() == at::kFloat && other.sizes() == weight.sizes() &&
      other.device() == weight.device() && other.is_contiguous()) {
    return;
  }
  throw Error(ErrorKind::bug, std::string("adamw_update: ") + name +
                                  " is not a contiguous f32 tensor of the weight's shape and device");
}

void update_cpu(at::Tensor& weight, const at::Tensor& gradient, double gradient_scale, at::Tensor& first,
                at::Tensor& second, int64_t step, double rate, const AdamWOptions& options) {
  const double n = static_cast<double>(step);
  AdamWScalars scalars;
  scalars.gradient_scale = static_cast<float>(gradient_scale);
  scalars.decay = static_cast<float>(1.0 - rate * options.weight_decay);
  scalars.first_rate = static_cast<float>(1.0 - options.beta1);
  scalars.second_keep = static_cast<float>(options.beta2);
  scalars.second_rate = static_cast<float>(1.0 - options.beta2);
  scalars.second_correction = static_cast<float>(std::sqrt(1.0 - std::pow(options.beta2, n)));
  scalars.epsilon = static_cast<float>(options.epsilon);
  scalars.step_size = static_cast<float>(rate / (1.0 - std::pow(options.beta1, n)));
  float* w = weight.mutable_data_ptr<float>();
  const float* g = gradient.const_data_ptr<float>();
  float* m = first.mutable_data_ptr<float>();
  float* v = second.mutable_data_ptr<float>();
  constexpr int64_t kGrain = 1 << 15;  // below this a second thread costs more than it saves
  at::parallel_for(0, weight.numel(), kGrain, [&](int64_t begin, int64_t end) {
    adamw_elements(w + begin, g + begin, m + begin, v + begin, end - begin, scalars);
  });
}

}  // namespace

void adamw_update(at::Tensor& weight, const at::Tensor& gradient, double gradient_scale, at::Tensor& first,
                  at::Tensor& second, int64_t step, double rate, const AdamWOptions& options) {
  check(weight, weight, "weight");
  check(weight, gradient, "gradient");
  check(weight, first, "first moment");
  check(weight, second, "second moment");
  if (step < 1) throw Error(ErrorKind::bug, "adamw_update: step " + std::to_string(step) + ", the first one is 1");
  if (weight.device().is_cpu()) {
    return update_cpu(weight, gradient, gradient_scale, first, second, step, rate, options);
  }
  const at::Tensor count = at::full({}, static_cast<double>(step), weight.options());
  const at::Tensor scaled = gradient * gradient_scale;
  at::Tensor detached = weight.detach();
  at::_fused_adamw_(detached, scaled, first, second, {}, count, rate, options.beta1, options.beta2,
                    options.weight_decay, options.epsilon, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace pacer::optim
