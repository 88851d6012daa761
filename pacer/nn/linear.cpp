#include "pacer/nn/linear.h"

#include <algorithm>
#include <optional>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/kernel_choice.h"

namespace pacer::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Scalars = c10::List<std::optional<at::Scalar>>;
using Pointwise = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&, std::string_view,
                             Scalars, std::optional<std::string_view>);

// oneDNN's f32 product. at::linear takes MKL for f32, which runs at the AVX2 rate on processors that are not Intel's:
// half of what they can do where AVX-512 is full width. Empty in a LibTorch without oneDNN.
std::optional<c10::TypedOperatorHandle<Pointwise>> find_pointwise() {
  const auto handle = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!handle) return std::nullopt;
  return handle->typed<Pointwise>();
}

F32Products& chosen() {
  static F32Products products = f32_products_of_processor();
  return products;
}

// x w^T; both may be turned views.
at::Tensor f32_product(F32Library library, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {}) {
  static const auto pointwise = find_pointwise();
  if (!pointwise || library == F32Library::torch) return at::linear(x, weight, bias);
  return pointwise->call(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, "none", Scalars(),
                         std::nullopt);
}

at::Tensor wide(const at::Tensor& part) { return part.to(at::kFloat); }

// oneDNN's product has no gradient of its own: dx = dy W, dW = dy^T x. Factors in bf16 are kept as they are and widened
// for each product; y is f32.
class F32Linear : public torch::autograd::Function<F32Linear> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight) {
    context->save_for_backward({x, weight});
    return f32_product(chosen().forward, wide(x), wide(weight));
  }
  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const at::Tensor dy = grad_outputs[0].reshape({-1, weight.size(0)});
    variable_list gradients(2);
    if (context->needs_input_grad(0)) {
      gradients[0] = f32_product(chosen().input_gradient, dy, wide(weight).t()).view_as(x).to(x.scalar_type());
    }
    if (context->needs_input_grad(1)) {
      const at::Tensor rows = wide(x.reshape({-1, weight.size(1)}));
      gradients[1] = f32_product(chosen().weight_gradient, dy.t(), rows.t()).to(weight.scalar_type());
    }
    return gradients;
  }
};

// The expected library for x w^T, unless the other one takes less than half of its time: both in turn, the best of
// some.
F32Library faster(F32Library expected, const at::Tensor& x, const at::Tensor& weight) {
  constexpr int kTimes = 7;
  const F32Library other = expected == F32Library::torch ? F32Library::onednn : F32Library::torch;
  double least[2] = {1e9, 1e9};
  for (int i = 0; i < kTimes; ++i) {
    for (const F32Library library : {expected, other}) {
      const double start = thread_cpu_seconds();
      f32_product(library, x, weight);
      double& seconds = least[library == other ? 1 : 0];
      seconds = std::min(seconds, thread_cpu_seconds() - start);
    }
  }
  return 2 * least[1] < least[0] ? other : expected;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (weight.dim() != 2 || x.dim() < 1 || x.size(-1) != weight.size(1) ||
      (bias.defined() && (bias.dim() != 1 || bias.size(0) != weight.size(0)))) {
    throw Error(ErrorKind::format,
                "linear: rows of width " + std::to_string(x.dim() < 1 ? 0 : x.size(-1)) + ", weight " +
                    c10::str(weight.sizes()) + (bias.defined() ? ", bias " + c10::str(bias.sizes()) : std::string()),
                "the checkpoint and its config.json disagree about a size");
  }
  const at::ScalarType dtype = x.scalar_type();
  const bool ours = weight.scalar_type() == dtype && device::own_kernels(x) &&
                    (dtype == at::kFloat || (dtype == at::kBFloat16 && widens_bf16_products()));
  if (!ours || x.numel() == 0) return at::linear(x, weight, bias);
  return widened_linear(x, weight, bias);
}

at::Tensor widened_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::ScalarType dtype = x.scalar_type();
  const at::Tensor wide_bias = bias.defined() ? wide(bias) : bias;
  if (!c10::GradMode::is_enabled()) {
    return f32_product(chosen().forward, wide(x), wide(weight), wide_bias).to(dtype);
  }
  const at::Tensor y = F32Linear::apply(x, weight);
  return (bias.defined() ? y + wide_bias : y).to(dtype);
}

F32Products f32_products() { return chosen(); }
void use_f32_products(const F32Products& products) { chosen() = products; }

F32Products f32_products_of_processor() {
  const F32Library library = is_intel() ? F32Library::torch : F32Library::onednn;
  return {library, library, library};
}

F32Products measured_f32_products() {
  const at::NoGradGuard no_grad;
  const auto values = [](int64_t rows, int64_t columns) { return at::full({rows, columns}, 0.5, at::kFloat); };
  constexpr int64_t kRows = 128, kIn = 576, kOut = 768;
  const at::Tensor x = values(kRows, kIn), weight = values(kOut, kIn), dy = values(kRows, kOut);
  const F32Products expected = f32_products_of_processor();
  return {faster(expected.forward, x, weight), faster(expected.input_gradient, dy, weight.t()),
          faster(expected.weight_gradient, dy.t(), x.t())};
}

const char* name_of(F32Library library) { return library == F32Library::torch ? "torch" : "onednn"; }

F32Library f32_library(const std::string& name) {
  for (const F32Library library : {F32Library::torch, F32Library::onednn}) {
    if (name == name_of(library)) return library;
  }
  throw Error(ErrorKind::format, "f32 products by '" + name + "', allowed: torch, onednn");
}

}  // namespace pacer::nn
