#include "pacer/target/autograd_forward.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

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
  const at::Tensor position = at::arange(rows), query = position.unsqueeze(1), key = position.unsqueeze(0);
  const at::Tensor hidden = (key > query) + (key <= query - reach);
  const at::Tensor scores = at::matmul(queries, keys.transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(2)));
  const at::Tensor weights = at::softmax(scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()), -1);
  return at::matmul(weights, values).transpose(0, 1);
}

}  // namespace

at::Tensor differentiable_logits(const ModelConfig& config, const WeightMap& weights, const TokenBatch& batch) {
  const ModelWeights model = arrange(config, weights);
  const nn::RopeRows turns = rope_table(config.rope, config.head_dim, config.max_position).rows(batch.positions);
  const int64_t rows = batch.rows(), head_dim = config.head_dim;

  at::Tensor hidden = at::embedding(model.embedding, batch.ids);
  for (size_t index = 0; index < model.layers.size(); ++index) {
    const LayerWeights& layer = model.layers[index];
    const int64_t reach = config.sliding_window.empty() ? rows : config.sliding_window[index].value_or(rows);
    const at::Tensor normed = nn::rms_norm(hidden, layer.input_norm, config.rms_epsilon);
    at::Tensor q = nn::linear(normed, layer.q, layer.q_bias).view({rows, config.heads, head_dim});
    at::Tensor k = nn::linear(normed, layer.k, layer.k_bias).view({rows, config.kv_heads, head_dim});
    const at::Tensor v = nn::linear(normed, layer.v, layer.v_bias).view({rows, config.kv_heads, head_dim});
    if (config.qk_norm) {
      q = nn::rms_norm(q, layer.q_norm, config.rms_epsilon);
      k = nn::rms_norm(k, layer.k_norm, config.rms_epsilon);
    }
    q = nn::apply_rope(q, turns);
    k = nn::apply_rope(k, turns);
    std::vector<at::Tensor> parts;
    for (size_t s = 0; s + 1 < batch.starts.size(); ++s) {
      const int64_t begin = batch.starts[s], end = batch.starts[s + 1];
      parts.push_back(attention(q.slice(0, begin, end), k.slice(0, begin, end), v.slice(0, begin, end), reach));
    }
    const at::Tensor mixed = at::cat(parts, 0).reshape({rows, config.heads * head_dim});
    hidden = hidden + nn::linear(mixed, layer.o, layer.o_bias);
    const at::Tensor inner = nn::rms_norm(hidden, layer.post_norm, config.rms_epsilon);
    const at::Tensor gated =
        at::silu(nn::linear(inner, layer.gate, layer.gate_bias)) * nn::linear(inner, layer.up, layer.up_bias);
    hidden = hidden + nn::linear(gated, layer.down, layer.down_bias);
  }
  return nn::linear(nn::rms_norm(hidden, model.final_norm, config.rms_epsilon), model.head);
}

}  // namespace pacer::target
