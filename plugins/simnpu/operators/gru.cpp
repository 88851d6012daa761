// The fused GRU cell. LibTorch's GRU calls it on every PrivateUse1 device, and there is no CPU kernel behind it.
#include "plugins/simnpu/operators/gru.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>

#include "plugins/simnpu/operators/launch.h"
#include "plugins/simnpu/rules/rules.h"

namespace pacer::simnpu {
namespace {

using MaybeTensor = std::optional<at::Tensor>;
using Tensors = std::vector<at::Tensor>;

at::Tensor value_or_undefined(const MaybeTensor& tensor) { return tensor.value_or(at::Tensor()); }

// Gates r, z, n (Cho et al. 2014, with the reset gate behind the product):
//   r = sigmoid(ir + hr), z = sigmoid(iz + hz), n = tanh(in + r * hn), h' = n + z * (h - n), biases within.
// The workspace keeps r, z, n, h and hn for the backward.
std::tuple<at::Tensor, at::Tensor> cell(const at::Tensor& input_gates, const at::Tensor& hidden_gates,
                                        const at::Tensor& hidden, const MaybeTensor& input_bias,
                                        const MaybeTensor& hidden_bias) {
  check_gru(input_gates.scalar_type());
  const at::Tensor out = at::empty_like(hidden);
  const at::Tensor workspace = at::empty({hidden.size(0), 5 * hidden.size(1)}, hidden.options());
  launch_kernel("aten::_thnn_fused_gru_cell",
                {input_gates, hidden_gates, hidden, value_or_undefined(input_bias), value_or_undefined(hidden_bias)},
                {out, workspace}, [](const Tensors& in, const Tensors& out) {
                  const auto gates = [](const at::Tensor& product, const at::Tensor& bias) {
                    return (bias.defined() ? product + bias : product).chunk(3, 1);
                  };
                  const Tensors i = gates(in[0], in[3]), h = gates(in[1], in[4]);
                  const at::Tensor r = at::sigmoid(i[0] + h[0]), z = at::sigmoid(i[1] + h[1]);
                  const at::Tensor n = at::tanh(i[2] + r * h[2]);
                  out[0].copy_(n + z * (in[2] - n));
                  out[1].copy_(at::cat({r, z, n, in[2], h[2]}, 1));
                });
  return {out, workspace};
}

// dn = g (1 - z)(1 - n^2), dr = dn hn r (1 - r), dz = g (h - n) z (1 - z); hn gets dn r, h gets g z.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> cell_backward(const at::Tensor& grad,
                                                                                     const at::Tensor& workspace,
                                                                                     bool has_bias) {
  const int64_t rows = grad.size(0), width = grad.size(1);
  const at::Tensor input_gates = at::empty({rows, 3 * width}, grad.options()),
                   hidden_gates = at::empty_like(input_gates);
  const at::Tensor hidden = at::empty_like(grad);
  launch_kernel("aten::_thnn_fused_gru_cell_backward", {grad, workspace}, {input_gates, hidden_gates, hidden},
                [](const Tensors& in, const Tensors& out) {
                  const at::Tensor& g = in[0];
                  const Tensors kept = in[1].chunk(5, 1);
                  const at::Tensor &r = kept[0], &z = kept[1], &n = kept[2], &h = kept[3], &hn = kept[4];
                  const at::Tensor dn = g * (1 - z) * (1 - n * n), dz = g * (h - n) * z * (1 - z);
                  const at::Tensor dr = dn * hn * r * (1 - r);
                  out[0].copy_(at::cat({dr, dz, dn}, 1));
                  out[1].copy_(at::cat({dr, dz, dn * r}, 1));
                  out[2].copy_(g * z);
                });
  return {input_gates, hidden_gates, hidden, has_bias ? input_gates.sum(0) : at::Tensor(),
          has_bias ? hidden_gates.sum(0) : at::Tensor()};
}

}  // namespace

void add_gru(torch::Library& aten) {
  aten.impl("_thnn_fused_gru_cell", &cell);
  aten.impl("_thnn_fused_gru_cell_backward", &cell_backward);
}

}  // namespace pacer::simnpu
