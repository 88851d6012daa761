#include "pacer/target/weights.h"

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/nn/tensor_io.h"

namespace pacer::target {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) { return c10::str(at::IntArrayRef(shape)); }

// Left over in checkpoints by old library versions; computed from the configuration here.
bool computed(const std::string& name) { return name.ends_with("rotary_emb.inv_freq"); }

using Shapes = std::map<std::string, std::vector<int64_t>>;

}  // namespace

void check_names(const ModelConfig& config, const Shapes& shapes, const std::vector<std::string>& names,
                 const std::string& place) {
  for (const std::string& name : names) {
    // Some writers store the head of a tied model again; it is the embedding.
    if (shapes.contains(name) || computed(name) || (config.tied_embeddings && name == "lm_head.weight")) continue;
    throw Error(ErrorKind::format,
                place + ": tensor " + name + " has no place in a " + config.architecture + " model of " +
                    std::to_string(config.layers) + " layers",
                "config.json and the weights are of different models, or the model has parts that are not supported");
  }
}

void check_shape(const std::string& place, const std::string& name, const std::vector<int64_t>& found,
                 const std::vector<int64_t>& expected) {
  if (found == expected) return;
  throw Error(ErrorKind::format,
              place + ": tensor " + name + " has shape " + shape_text(found) + ", expected " + shape_text(expected),
              "config.json and the weights are of different models");
}

std::string layer_name(int64_t layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + "." + name;
}

std::map<std::string, std::vector<int64_t>> weight_shapes(const ModelConfig& config) {
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const int64_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
  std::map<std::string, std::vector<int64_t>> shapes = {{"model.embed_tokens.weight", {config.vocab_size, hidden}},
                                                        {"model.norm.weight", {hidden}}};
  if (!config.tied_embeddings) shapes["lm_head.weight"] = {config.vocab_size, hidden};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string at = layer_name(i, "");
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
      shapes[at + name + ".weight"] = {out, in};
      if (bias) shapes[at + name + ".bias"] = {out};
    };
    shapes[at + "input_layernorm.weight"] = {hidden};
    shapes[at + "post_attention_layernorm.weight"] = {hidden};
    matrix("self_attn.q_proj", queries, hidden, config.qkv_bias);
    matrix("self_attn.k_proj", keys, hidden, config.qkv_bias);
    matrix("self_attn.v_proj", keys, hidden, config.qkv_bias);
    matrix("self_attn.o_proj", hidden, queries, config.o_bias);
    if (config.qk_norm) {
      shapes[at + "self_attn.q_norm.weight"] = {config.head_dim};
      shapes[at + "self_attn.k_norm.weight"] = {config.head_dim};
    }
    matrix("mlp.gate_proj", inner, hidden, config.mlp_bias);
    matrix("mlp.up_proj", inner, hidden, config.mlp_bias);
    matrix("mlp.down_proj", hidden, inner, config.mlp_bias);
  }
  return shapes;
}

WeightMap load_weights(const ModelConfig& config, const std::shared_ptr<const formats::TensorSource>& source,
                       at::ScalarType dtype) {
  const auto shapes = weight_shapes(config);
  check_names(config, shapes, source->names(), source->place());
  if (config.tied_embeddings && source->has("lm_head.weight")) {
    const auto head = source->tensor("lm_head.weight").bytes;
    if (!std::ranges::equal(head, source->tensor("model.embed_tokens.weight").bytes)) {
      log_warning(source->place() +
                  ": lm_head.weight differs from the embedding and is not used, because "
                  "tie_word_embeddings is true; if the head is the model's, set it to false in config.json");
    }
  }
  WeightMap weights;
  for (const auto& [name, shape] : shapes) {
    const formats::TensorView view = source->tensor(name);
    check_shape(source->place(), name, view.shape, shape);
    weights[name] = nn::load_tensor(source, name, dtype);
  }
  return weights;
}

WeightMap load_weights(const ModelConfig& config, const StoredMatrices& stored, at::ScalarType dtype,
                       bool vectors_only) {
  const Shapes shapes = weight_shapes(config);
  const formats::GgufModel& model = stored.model();
  check_names(config, shapes, model.names(), model.file().place());
  WeightMap weights;
  for (const auto& [name, shape] : shapes) {
    check_shape(model.file().place(), name, model.shape(name), shape);
    if (!vectors_only || shape.size() == 1) weights[name] = stored.dense(name, dtype);
  }
  return weights;
}

ModelWeights arrange(const ModelConfig& config, const WeightMap& weights,
                     std::shared_ptr<const StoredMatrices> stored) {
  const auto get = [&](const std::string& name, bool wanted = true) {
    if (!wanted) return at::Tensor();
    const auto found = weights.find(name);
    if (found == weights.end()) throw Error(ErrorKind::format, "weight " + name + " is missing");
    return found->second;
  };
  const bool dense = stored == nullptr;
  ModelWeights model;
  model.stored = std::move(stored);
  model.embedding = get("model.embed_tokens.weight", dense);
  model.head = config.tied_embeddings ? model.embedding : get("lm_head.weight", dense);
  model.final_norm = get("model.norm.weight");
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string at = layer_name(i, ""), attention = at + "self_attn.", mlp = at + "mlp.";
    model.layers.push_back({
        .input_norm = get(at + "input_layernorm.weight"),
        .post_norm = get(at + "post_attention_layernorm.weight"),
        .q = get(attention + "q_proj.weight", dense),
        .k = get(attention + "k_proj.weight", dense),
        .v = get(attention + "v_proj.weight", dense),
        .o = get(attention + "o_proj.weight", dense),
        .q_bias = get(attention + "q_proj.bias", config.qkv_bias),
        .k_bias = get(attention + "k_proj.bias", config.qkv_bias),
        .v_bias = get(attention + "v_proj.bias", config.qkv_bias),
        .o_bias = get(attention + "o_proj.bias", config.o_bias),
        .q_norm = get(attention + "q_norm.weight", config.qk_norm),
        .k_norm = get(attention + "k_norm.weight", config.qk_norm),
        .gate = get(mlp + "gate_proj.weight", dense),
        .up = get(mlp + "up_proj.weight", dense),
        .down = get(mlp + "down_proj.weight", dense),
        .gate_bias = get(mlp + "gate_proj.bias", config.mlp_bias),
        .up_bias = get(mlp + "up_proj.bias", config.mlp_bias),
        .down_bias = get(mlp + "down_proj.bias", config.mlp_bias),
    });
  }
  return model;
}

}  // namespace pacer::target
