#include "pacer/target/autograd_forward.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/logical_or.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include "pacer/device/indices.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/rms_norm.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::target {
namespace {

// softmax(q k^T / sqrt(D)) v over one sequence, q [T, heads, D]; keys and values repeated over their query heads. A
// query sees `reach` positions, its own included.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t reach) {
  const int64_t rows = q.size(0), group = q.size(1) / k.size(1);
  const at::Tensor queries = q.transpose(0, 1);
  const at::Tensor keys = k.transpose(0, 1).repeat_interleave(group, 0);
  const at::Tensor values = v.transpose(0, 1).repeat_interleave(group, 0);
  const at::Tensor position = at::arange(rows, q.options().dtype(at::kInt)), query = position.unsqueeze(1),
                   key = position.unsqueeze(0);
  const at::Tensor hidden = at::logical_or(key > query, key <= query - reach);
  const at::Tensor scores = at::matmul(queries, keys.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
  const at::Tensor weights = at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return at::matmul(weights, values).transpose(0, 1);
}

}  // namespace

DifferentiableModel::DifferentiableModel(const ModelConfig& config, const WeightMap& weights)
    : config_(config), model_(arrange(config, weights)) {}

nn::RopeRows DifferentiableModel::rope_rows(const TokenBatch& batch) const {
  const nn::RopeRows rows = rope_table(config_.rope, config_.head_dim, config_.max_position).rows(batch.positions);
  return {rows.cos.to(model_.embedding.device()), rows.sin.to(model_.embedding.device())};
}

at::Tensor DifferentiableModel::embed(const TokenBatch& batch) const {
  return at::embedding(model_.embedding, device::as_indices(batch.ids, model_.embedding.device()));
}

at::Tensor DifferentiableModel::layer(int64_t index, const at::Tensor& hidden, const TokenBatch& batch,
                                      const nn::RopeRows& turns) const {
  const LayerWeights& layer = model_.layers[static_cast<size_t>(index)];
  const int64_t rows = batch.rows(), head_dim = config_.head_dim;
  const int64_t reach =
      config_.sliding_window.empty() ? rows : config_.sliding_window[static_cast<size_t>(index)].value_or(rows);
  const at::Tensor normed = nn::rms_norm(hidden, layer.input_norm, config_.rms_epsilon);
  at::Tensor q = nn::linear(normed, layer.q, layer.q_bias).view({rows, config_.heads, head_dim});
  at::Tensor k = nn::linear(normed, layer.k, layer.k_bias).view({rows, config_.kv_heads, head_dim});
  const at::Tensor v = nn::linear(normed, layer.v, layer.v_bias).view({rows, config_.kv_heads, head_dim});
  if (config_.qk_norm) {
    q = nn::rms_norm(q, layer.q_norm, config_.rms_epsilon);
    k = nn::rms_norm(k, layer.k_norm, config_.rms_epsilon);
  }
  q = nn::apply_rope(q, turns);
  k = nn::apply_rope(k, turns);
  std::vector<at::Tensor> parts;
  for (size_t s = 0; s + 1 < batch.starts.size(); ++s) {
    const int64_t begin = batch.starts[s], end = batch.starts[s + 1];
    parts.push_back(attention(q.slice(0, begin, end), k.slice(0, begin, end), v.slice(0, begin, end), reach));
  }
  const at::Tensor mixed = at::cat(parts, 0).reshape({rows, config_.heads * head_dim});
  const at::Tensor attended = hidden + nn::linear(mixed, layer.o, layer.o_bias);
  const at::Tensor inner = nn::rms_norm(attended, layer.post_norm, config_.rms_epsilon);
  const at::Tensor gated =
      at::silu(nn::linear(inner, layer.gate, layer.gate_bias)) * nn::linear(inner, layer.up, layer.up_bias);
  return attended + nn::linear(gated, layer.down, layer.down_bias);
}

at::Tensor DifferentiableModel::normed(const at::Tensor& hidden) const {
  return nn::rms_norm(hidden, model_.final_norm, config_.rms_epsilon);
}

at::Tensor DifferentiableModel::logits(const at::Tensor& hidden) const {
  return nn::linear(normed(hidden), model_.head);
}

at::Tensor DifferentiableModel::last_hidden(const TokenBatch& batch) const {
  const nn::RopeRows turns = rope_rows(batch);
  at::Tensor hidden = embed(batch);
  for (int64_t i = 0; i < config_.layers; ++i) hidden = layer(i, hidden, batch, turns);
  return normed(hidden);
}

std::vector<std::vector<std::string>> DifferentiableModel::parameters_by_place() const {
  std::vector<std::vector<std::string>> places(static_cast<size_t>(config_.layers) + 2);
  for (const auto& [name, shape] : weight_shapes(config_)) {
    size_t place = name == "model.embed_tokens.weight" ? 0 : places.size() - 1;
    for (int64_t i = 0; i < config_.layers; ++i) {
      if (name.starts_with(layer_name(i, ""))) place = static_cast<size_t>(i) + 1;
    }
    places[place].push_back(name);
  }
  if (config_.tied_embeddings) places.back().push_back("model.embed_tokens.weight");
  return places;
}

at::Tensor differentiable_logits(const ModelConfig& config, const WeightMap& weights, const TokenBatch& batch) {
  const DifferentiableModel model(config, weights);
  return nn::linear(model.last_hidden(batch), model.head());
}

}  // namespace pacer::target
