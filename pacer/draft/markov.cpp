#include "pacer/draft/markov.h"

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/nn/linear.h"

namespace pacer::draft {

MarkovWeights arrange_markov(const DraftConfig& config, const DraftWeights& weights, at::ScalarType dtype,
                             std::optional<c10::Device> device) {
  MarkovWeights out;
  out.kind = config.markov;
  if (out.kind == MarkovKind::none) return out;
  const auto get = [&](const std::string& name) {
    const at::Tensor weight = weights.at("markov_head." + name).detach();
    return weight.to(device.value_or(weight.device()), dtype, false, /*copy=*/true);
  };
  out.w2 = get("markov_w2.weight");
  if (out.kind != MarkovKind::vanilla) {
    const std::string name = out.kind == MarkovKind::gated ? "gate_proj" : "joint_proj";
    out.projection = get(name + ".weight");
    out.projection_bias = get(name + ".bias");
  }
  return out;
}

MarkovStep markov_step(const MarkovWeights& weights, const at::Tensor& e, const at::Tensor& h,
                       const at::Tensor& state) {
  if (weights.kind == MarkovKind::vanilla) return {e, {}};
  if (weights.kind == MarkovKind::gated) {
    const at::Tensor gate = nn::linear(at::cat({h, e}, 1), weights.projection, weights.projection_bias);
    return {at::sigmoid(gate) * e, {}};
  }
  const at::Tensor before = state.defined() ? state : at::zeros_like(e);
  const at::Tensor joint = nn::linear(at::cat({before, e, h}, 1), weights.projection, weights.projection_bias);
  const int64_t rank = e.size(1);
  const at::Tensor keep = at::sigmoid(joint.slice(1, 0, rank));
  const at::Tensor candidate = at::tanh(joint.slice(1, rank, 2 * rank));
  return {at::tanh(joint.slice(1, 2 * rank, 3 * rank)), keep * before + (1 - keep) * candidate};
}

at::Tensor markov_blocks(const MarkovWeights& weights, const at::Tensor& e, const at::Tensor& h, int64_t block_size) {
  if (weights.kind != MarkovKind::rnn) return markov_step(weights, e, h, {}).u;
  const int64_t blocks = e.size(0) / block_size;
  const at::Tensor slots_e = e.view({blocks, block_size, e.size(1)}), slots_h = h.view({blocks, block_size, h.size(1)});
  std::vector<at::Tensor> u;
  at::Tensor state;
  for (int64_t k = 0; k < block_size; ++k) {
    MarkovStep step = markov_step(weights, slots_e.select(1, k), slots_h.select(1, k), state);
    u.push_back(step.u);
    state = step.state;
  }
  return at::stack(u, 1).view({e.size(0), e.size(1)});
}

}  // namespace pacer::draft
