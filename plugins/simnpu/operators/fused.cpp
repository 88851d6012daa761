#include "plugins/simnpu/operators/fused.h"

#include <tuple>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/custom_function.h>

#include "plugins/npu/fused_schemas.h"
#include "plugins/simnpu/operators/launch.h"

namespace pacer::simnpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Tensors = std::vector<at::Tensor>;

std::vector<int64_t> resized(const at::Tensor& tensor, int64_t dim, int64_t size) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.at(static_cast<size_t>(dim)) = size;
  return sizes;
}

// --- npu_rms_norm(self [..., H], gamma [H], epsilon) -> (self * rstd * gamma, rstd [..., 1] f32)

std::tuple<at::Tensor, at::Tensor> rms_norm_kernel(const at::Tensor& self, const at::Tensor& gamma, double epsilon) {
  TORCH_CHECK(gamma.dim() == 1 && self.dim() >= 1 && self.size(-1) == gamma.size(0), "npu_rms_norm: self ",
              self.sizes(), " and gamma ", gamma.sizes());
  const at::Tensor y = at::empty_like(self);
  const at::Tensor rstd = at::empty(resized(self, self.dim() - 1, 1), self.options().dtype(at::kFloat));
  launch_kernel("npu::npu_rms_norm", {self, gamma}, {y, rstd}, [epsilon](const Tensors& in, const Tensors& out) {
    const at::Tensor x = in[0].to(at::kFloat);
    out[1].copy_(at::rsqrt(x.square().mean(-1, true) + epsilon));
    out[0].copy_(x * out[1] * in[1].to(at::kFloat));
  });
  return {y, rstd};
}

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static variable_list forward(AutogradContext* context, const at::Tensor& self, const at::Tensor& gamma,
                               double epsilon) {
    const at::AutoDispatchBelowADInplaceOrView below;
    const auto [y, rstd] = rms_norm_kernel(self, gamma, epsilon);
    context->save_for_backward({self, gamma, rstd});
    context->mark_non_differentiable({rstd});
    return {y, rstd};
  }
  // With n = self * rstd and g = dy * gamma: dself = rstd * (g - n * mean(g * n)), dgamma = sum over rows of dy * n.
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor self_grad = at::empty_like(saved[0]), gamma_grad = at::empty_like(saved[1]);
    launch_kernel("npu::npu_rms_norm_backward", {grads[0], saved[0], saved[1], saved[2]}, {self_grad, gamma_grad},
                  [](const Tensors& in, const Tensors& out) {
                    const at::Tensor dy = in[0].to(at::kFloat), n = in[1].to(at::kFloat) * in[3];
                    const at::Tensor g = dy * in[2].to(at::kFloat);
                    out[0].copy_(in[3] * (g - n * (g * n).mean(-1, true)));
                    out[1].copy_((dy * n).reshape({-1, out[1].size(0)}).sum(0));
                  });
    return {self_grad, gamma_grad, at::Tensor()};
  }
};

std::tuple<at::Tensor, at::Tensor> rms_norm_autograd(const at::Tensor& self, const at::Tensor& gamma, double epsilon) {
  const variable_list results = RmsNorm::apply(self, gamma, epsilon);
  return {results[0], results[1]};
}

// --- npu_swiglu(self with the halves gate and up along dim) -> silu(gate) * up

at::Tensor swiglu_kernel(const at::Tensor& self, int64_t dim) {
  const int64_t along = c10::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(self.size(along) % 2 == 0, "npu_swiglu: ", self.sizes(), " cannot be halved along ", dim);
  const at::Tensor y = at::empty(resized(self, along, self.size(along) / 2), self.options());
  launch_kernel("npu::npu_swiglu", {self}, {y}, [along](const Tensors& in, const Tensors& out) {
    const Tensors halves = in[0].to(at::kFloat).chunk(2, along);
    out[0].copy_(at::silu(halves[0]) * halves[1]);
  });
  return y;
}

class Swiglu : public torch::autograd::Function<Swiglu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self, int64_t dim) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({self});
    context->saved_data["dim"] = c10::maybe_wrap_dim(dim, self.dim());
    return swiglu_kernel(self, dim);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const at::Tensor self = context->get_saved_variables()[0], grad = at::empty_like(self);
    const int64_t along = context->saved_data["dim"].toInt();
    launch_kernel("npu::npu_swiglu_backward", {grads[0], self}, {grad}, [along](const Tensors& in, const Tensors& out) {
      const at::Tensor dy = in[0].to(at::kFloat);
      const Tensors halves = in[1].to(at::kFloat).chunk(2, along);
      const at::Tensor s = at::sigmoid(halves[0]);
      out[0].copy_(at::cat({dy * halves[1] * s * (1 + halves[0] * (1 - s)), dy * halves[0] * s}, along));
    });
    return {grad, at::Tensor()};
  }
};

at::Tensor swiglu_autograd(const at::Tensor& self, int64_t dim) { return Swiglu::apply(self, dim); }

// --- npu_rotary_mul(self, r1 = cos, r2 = sin) -> self * r1 + rotate(self) * r2, rotate((a, b)) = (-b, a) on halves

at::Tensor rotate(const at::Tensor& x) {
  const Tensors halves = x.chunk(2, -1);
  return at::cat({-halves[1], halves[0]}, -1);
}

at::Tensor rotary_kernel(const at::Tensor& self, const at::Tensor& cosine, const at::Tensor& sine) {
  const at::Tensor y = at::empty_like(self);
  launch_kernel("npu::npu_rotary_mul", {self, cosine, sine}, {y}, [](const Tensors& in, const Tensors& out) {
    const at::Tensor x = in[0].to(at::kFloat);
    out[0].copy_(x * in[1].to(at::kFloat) + rotate(x) * in[2].to(at::kFloat));
  });
  return y;
}

class Rotary : public torch::autograd::Function<Rotary> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& self, const at::Tensor& cosine,
                            const at::Tensor& sine) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({self, cosine, sine});
    return rotary_kernel(self, cosine, sine);
  }
  // The transpose of rotate is its negative.
  static variable_list backward(AutogradContext* context, const variable_list& grads) {
    const variable_list saved = context->get_saved_variables();
    Tensors out;
    for (const at::Tensor& tensor : saved) out.push_back(at::empty_like(tensor));
    launch_kernel("npu::npu_rotary_mul_backward", {grads[0], saved[0], saved[1], saved[2]}, out,
                  [](const Tensors& in, const Tensors& out) {
                    const at::Tensor dy = in[0].to(at::kFloat), x = in[1].to(at::kFloat);
                    out[0].copy_(dy * in[2].to(at::kFloat) - rotate(dy * in[3].to(at::kFloat)));
                    out[1].copy_((dy * x).sum_to_size(out[1].sizes()));
                    out[2].copy_((dy * rotate(x)).sum_to_size(out[2].sizes()));
                  });
    return out;
  }
};

void check_rotary(const at::Tensor& self, c10::string_view mode, const std::optional<at::Tensor>& matrix) {
  TORCH_CHECK(mode == "half", "npu_rotary_mul: only rotary_mode 'half' is simulated, found '", mode, "'");
  TORCH_CHECK(!matrix || !matrix->defined(), "npu_rotary_mul: a rotate matrix is not simulated");
  TORCH_CHECK(self.dim() == 4 && self.size(-1) % 2 == 0,
              "npu_rotary_mul: self must be 4-dimensional with an even last "
              "dimension, found ",
              self.sizes());
}

at::Tensor rotary(const at::Tensor& self, const at::Tensor& r1, const at::Tensor& r2, c10::string_view mode,
                  const std::optional<at::Tensor>& matrix) {
  check_rotary(self, mode, matrix);
  return rotary_kernel(self, r1, r2);
}
at::Tensor rotary_autograd(const at::Tensor& self, const at::Tensor& r1, const at::Tensor& r2, c10::string_view mode,
                           const std::optional<at::Tensor>& matrix) {
  check_rotary(self, mode, matrix);
  return Rotary::apply(self, r1, r2);
}

}  // namespace

void register_fused_operators() {
  auto* schemas = new torch::Library(torch::Library::FRAGMENT, "npu", std::nullopt, __FILE__, __LINE__);
  auto* kernels = new torch::Library(torch::Library::IMPL, "npu", c10::DispatchKey::PrivateUse1, __FILE__, __LINE__);
  auto* autograd =
      new torch::Library(torch::Library::IMPL, "npu", c10::DispatchKey::AutogradPrivateUse1, __FILE__, __LINE__);
  schemas->def(npu::kRmsNormSchema);
  schemas->def(npu::kSwigluSchema);
  schemas->def(npu::kRotaryMulSchema);
  kernels->impl("npu_rms_norm", &rms_norm_kernel);
  kernels->impl("npu_swiglu", &swiglu_kernel);
  kernels->impl("npu_rotary_mul", &rotary);
  autograd->impl("npu_rms_norm", &rms_norm_autograd);
  autograd->impl("npu_swiglu", &swiglu_autograd);
  autograd->impl("npu_rotary_mul", &rotary_autograd);
  add_fused_attention(*schemas, *kernels, *autograd);
}

}  // namespace pacer::simnpu
