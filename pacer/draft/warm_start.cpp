#include "pacer/draft/warm_start.h"

#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/rms_norm.h"

namespace pacer::draft {
namespace {

void check_sizes(const DraftConfig& config, const target::ModelConfig& model) {
  const target::ModelConfig& layer = config.layer;
  const auto same = [](const char* what, int64_t draft, int64_t target) {
    if (draft == target) return;
    throw Error(ErrorKind::usage,
                std::string("a warm start copies layers of the target, but the draft's ") + what + " is " +
                    std::to_string(draft) + " and the target's " + std::to_string(target),
                "give the draft the target's layer sizes, or start it cold");
  };
  same("intermediate_size", layer.intermediate_size, model.intermediate_size);
  same("num_attention_heads", layer.heads, model.heads);
  same("num_key_value_heads", layer.kv_heads, model.kv_heads);
  same("head_dim", layer.head_dim, model.head_dim);
  if (config.layers > model.layers) same("number of layers", config.layers, model.layers);
}

target::TokenBatch token_batch(const FeatureBatch& sample) {
  std::vector<at::Tensor> positions;
  for (size_t s = 0; s + 1 < sample.starts.size(); ++s) {
    positions.push_back(at::arange(sample.starts[s + 1] - sample.starts[s], at::kLong));
  }
  return {sample.ids, at::cat(positions), sample.starts};
}

// RMS over rows and heads of each channel of x W^T (+ bias): [D] f32.
at::Tensor channel_rms(const at::Tensor& rows, const at::Tensor& weight, const at::Tensor& bias, int64_t width) {
  const at::Tensor projected = nn::linear(rows, weight, bias).to(at::kFloat).view({-1, width});
  return projected.square().mean(0).sqrt();
}

}  // namespace

void warm_start(const DraftConfig& config, const target::Target& target, const FeatureBatch& sample,
                DraftWeights& weights) {
  const target::ModelConfig& model = target.config();
  check_sizes(config, model);
  const int64_t hidden = model.hidden_size, width = model.head_dim;
  const auto put = [&weights](const std::string& name, const at::Tensor& value) {
    weights.at(name).copy_(value.to(at::kFloat));
  };
  at::Tensor input_norms;
  for (int64_t i = 0; i < config.layers; ++i) {
    const int64_t from = model.layers - config.layers + i;
    const std::string source = "model.layers." + std::to_string(from) + ".", to = "layers." + std::to_string(i) + ".";
    for (const char* name : {"input_layernorm.weight", "post_attention_layernorm.weight", "self_attn.q_proj.weight",
                             "self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.o_proj.weight",
                             "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"}) {
      put(to + name, target.weight(source + name));
    }
    if (config.layer.qkv_bias && model.qkv_bias) {
      for (const char* name : {"self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"}) {
        put(to + name, target.weight(source + name));
      }
    }
    if (config.layer.o_bias && model.o_bias) {
      put(to + "self_attn.o_proj.bias", target.weight(source + "self_attn.o_proj.bias"));
    }
    for (const std::string which : {"q", "k"}) {
      const std::string norm = "self_attn." + which + "_norm.weight";
      if (model.qk_norm) {
        put(to + norm, target.weight(source + norm));
        continue;
      }
      const at::Tensor stream = target.forward(token_batch(sample), {from - 1}).tapped.select(1, 0);
      const at::Tensor rows = nn::rms_norm(stream, target.weight(source + "input_layernorm.weight"), model.rms_epsilon);
      const std::string projection = source + "self_attn." + which + "_proj.";
      const at::Tensor bias = model.qkv_bias ? target.weight(projection + "bias") : at::Tensor();
      put(to + norm, channel_rms(rows, target.weight(projection + "weight"), bias, width));
    }
    const at::Tensor input_norm = target.weight(source + "input_layernorm.weight").to(at::kFloat);
    input_norms = input_norms.defined() ? input_norms + input_norm : input_norm;
  }
  put("hidden_norm.weight", input_norms / config.layers);
  put("norm.weight", target.weight("model.norm.weight"));
  at::Tensor& fc = weights.at("fc.weight");
  fc.mul_(0.1);
  fc.slice(1, fc.size(1) - hidden).add_(at::eye(hidden, at::kFloat).to(fc.device()));
}

}  // namespace pacer::draft
