#include "pacer/nn/swiglu.h"

#include <algorithm>
#include <string>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/device/plugin.h"
#include "pacer/nn/clones.h"
#include "pacer/nn/lanes.h"

namespace pacer::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// sigmoid, exact to a few ulp; a gate that is NaN must be multiplied by it, as the bound hides it here.
PACER_LANES Lanes sigmoid_of(const Lanes& gate) { return 1.0f / (1.0f + exp_of(-larger(gate, all(-87.0f)))); }

template <typename T>
PACER_LANES void forward_lanes(const T* gate, const T* up, T* y, int64_t count) {
  const Lanes g = load_some(gate, count), u = load_some(up, count);
  store_some(y, g * sigmoid_of(g) * u, count);
}

template <typename T>
PACER_LANES void backward_lanes(const T* gate, const T* up, const T* dy, T* d_gate, T* d_up, int64_t count) {
  const Lanes g = load_some(gate, count), u = load_some(up, count), d = load_some(dy, count), s = sigmoid_of(g);
  store_some(d_gate, d * u * (s * (1.0f + g * (1.0f - s))), count);
  store_some(d_up, d * (g * s), count);
}

template <typename T>
PACER_LANES void forward_row(const T* gate_up, T* y, int64_t inner) {
  for (int64_t i = 0; i < inner; i += kLanes) {
    const int64_t count = std::min(kLanes, inner - i);
    forward_lanes(gate_up + i, gate_up + inner + i, y + i, count);
  }
}

template <typename T>
PACER_LANES void backward_row(const T* gate_up, const T* dy, T* d, int64_t inner) {
  for (int64_t i = 0; i < inner; i += kLanes) {
    const int64_t count = std::min(kLanes, inner - i);
    backward_lanes(gate_up + i, gate_up + inner + i, dy + i, d + i, d + inner + i, count);
  }
}

PACER_CLONES void forward_one(const float* gate_up, float* y, int64_t inner) { forward_row(gate_up, y, inner); }
PACER_CLONES void forward_one(const uint16_t* gate_up, uint16_t* y, int64_t inner) { forward_row(gate_up, y, inner); }
PACER_CLONES void backward_one(const float* gate_up, const float* dy, float* d, int64_t inner) {
  backward_row(gate_up, dy, d, inner);
}
PACER_CLONES void backward_one(const uint16_t* gate_up, const uint16_t* dy, uint16_t* d, int64_t inner) {
  backward_row(gate_up, dy, d, inner);
}

template <typename T>
const T* data_of(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

// Calls row(i) for all rows, which the threads share.
template <typename Row>
void for_rows(const at::Tensor& gate_up, const Row& row) {
  at::parallel_for(0, gate_up.size(0), 1 + 16384 / (gate_up.size(1) + 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i);
  });
}

template <typename T>
at::Tensor forward_of(const at::Tensor& gate_up) {
  const int64_t inner = gate_up.size(1) / 2;
  at::Tensor y = at::empty({gate_up.size(0), inner}, gate_up.options());
  const T* from = data_of<T>(gate_up);
  T* to = static_cast<T*>(y.mutable_data_ptr());
  for_rows(gate_up, [&](int64_t i) { forward_one(from + i * 2 * inner, to + i * inner, inner); });
  return y;
}

template <typename T>
at::Tensor backward_of(const at::Tensor& gate_up, const at::Tensor& dy) {
  const int64_t inner = gate_up.size(1) / 2;
  at::Tensor d = at::empty_like(gate_up);
  const T *from = data_of<T>(gate_up), *grad = data_of<T>(dy);
  T* to = static_cast<T*>(d.mutable_data_ptr());
  for_rows(gate_up,
           [&](int64_t i) { backward_one(from + i * 2 * inner, grad + i * inner, to + i * 2 * inner, inner); });
  return d;
}

// With s = sigmoid(gate):  d gate = dy up s (1 + gate (1 - s)),  d up = dy gate s. Only gate_up is kept for it, and
// both gradients are written where the product before it reads them.
class SwiGlu : public torch::autograd::Function<SwiGlu> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& given) {
    const at::Tensor gate_up = given.contiguous();
    context->save_for_backward({gate_up});
    return gate_up.scalar_type() == at::kFloat ? forward_of<float>(gate_up) : forward_of<uint16_t>(gate_up);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const at::Tensor gate_up = context->get_saved_variables()[0], dy = grad_outputs[0].contiguous();
    return {gate_up.scalar_type() == at::kFloat ? backward_of<float>(gate_up, dy) : backward_of<uint16_t>(gate_up, dy)};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up) {
  if (gate_up.dim() != 2 || gate_up.size(1) % 2 != 0) {
    throw Error(ErrorKind::bug,
                "swiglu: rows of gate and up are expected as [R, 2 F], found " + c10::str(gate_up.sizes()));
  }
  if (auto* fused = device::fused_operators(gate_up.device()).swiglu) return fused(gate_up);
  const bool dtype = gate_up.scalar_type() == at::kFloat || gate_up.scalar_type() == at::kBFloat16;
  if (dtype && device::own_kernels(gate_up)) return SwiGlu::apply(gate_up);
  const int64_t inner = gate_up.size(1) / 2;
  return at::silu(gate_up.slice(1, 0, inner)) * gate_up.slice(1, inner, 2 * inner);
}

}  // namespace pacer::nn
