#include "pacer/draft/backbone.h"

#include <cmath>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>

#include "pacer/nn/linear.h"
#include "pacer/nn/rms_norm.h"
#include "pacer/nn/swiglu.h"

namespace pacer::draft {

BackboneWeights arrange(const DraftConfig& config, const DraftWeights& weights, at::ScalarType dtype) {
  const auto get = [&](const std::string& name) { return weights.at(name).detach().to(dtype, false, /*copy=*/true); };
  BackboneWeights out{get("fc.weight"), get("hidden_norm.weight"), get("norm.weight"), {}};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string at = "layers." + std::to_string(i) + ".", attention = at + "self_attn.", mlp = at + "mlp.";
    LayerWeights layer;
    layer.input_norm = get(at + "input_layernorm.weight");
    layer.post_norm = get(at + "post_attention_layernorm.weight");
    layer.q = get(attention + "q_proj.weight");
    layer.kv = at::cat({get(attention + "k_proj.weight"), get(attention + "v_proj.weight")});
    layer.q_norm = get(attention + "q_norm.weight");
    layer.k_norm = get(attention + "k_norm.weight");
    layer.o = get(attention + "o_proj.weight");
    layer.gate_up = at::cat({get(mlp + "gate_proj.weight"), get(mlp + "up_proj.weight")});
    layer.down = get(mlp + "down_proj.weight");
    if (config.layer.qkv_bias) {
      layer.q_bias = get(attention + "q_proj.bias");
      layer.kv_bias = at::cat({get(attention + "k_proj.bias"), get(attention + "v_proj.bias")});
    }
    if (config.layer.o_bias) layer.o_bias = get(attention + "o_proj.bias");
    out.layers.push_back(std::move(layer));
  }
  return out;
}

at::Tensor Backbone::context(const BackboneWeights& weights, const at::Tensor& tapped) const {
  const at::Tensor rows = tapped.flatten(1);
  return nn::rms_norm(nn::linear(rows, weights.fc), weights.hidden_norm, config_.layer.rms_epsilon);
}

KeysValues Backbone::keys_values(const LayerWeights& layer, const at::Tensor& rows,
                                 const nn::RopeRows& positions) const {
  const int64_t heads = config_.layer.kv_heads, width = config_.layer.head_dim;
  // Taken apart at once: two selected views would give the backward two full gradients and their sum.
  const std::vector<at::Tensor> both =
      nn::linear(rows, layer.kv, layer.kv_bias).view({rows.size(0), 2, heads, width}).unbind(1);
  const at::Tensor k = nn::rms_norm(both[0], layer.k_norm, config_.layer.rms_epsilon);
  return {nn::apply_rope(k, positions), both[1]};
}

KeysValues Backbone::context_keys(const LayerWeights& layer, const at::Tensor& context,
                                  const nn::RopeRows& positions) const {
  return keys_values(layer, context, positions);
}

at::Tensor Backbone::layer(const LayerWeights& weights, int64_t index, const at::Tensor& x, const KeysValues& context,
                           const nn::BlockLayout& layout, const nn::RopeRows& positions) const {
  const target::ModelConfig& sizes = config_.layer;
  const at::Tensor y = nn::rms_norm(x, weights.input_norm, sizes.rms_epsilon);
  const at::Tensor q_rows = nn::linear(y, weights.q, weights.q_bias).view({y.size(0), sizes.heads, sizes.head_dim});
  const at::Tensor q = nn::apply_rope(nn::rms_norm(q_rows, weights.q_norm, sizes.rms_epsilon), positions);
  const KeysValues own = keys_values(weights, y, positions);
  const std::optional<int64_t> window =
      config_.sliding_window.empty() ? std::nullopt : config_.sliding_window[static_cast<size_t>(index)];
  const double scale = 1.0 / std::sqrt(static_cast<double>(sizes.head_dim));
  const at::Tensor mixed = nn::block_attention(q, own.k, own.v, context.k, context.v, layout, scale, window);
  const at::Tensor middle = x + nn::linear(mixed.flatten(1), weights.o, weights.o_bias);

  const at::Tensor z = nn::rms_norm(middle, weights.post_norm, sizes.rms_epsilon);
  return middle + nn::linear(nn::swiglu(nn::linear(z, weights.gate_up)), weights.down);
}

at::Tensor Backbone::final_norm(const BackboneWeights& weights, const at::Tensor& x) const {
  return nn::rms_norm(x, weights.norm, config_.layer.rms_epsilon);
}

}  // namespace pacer::draft
