#include "pacer/target/long_forward.h"

#include <algorithm>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/silu.h>

#include "pacer/device/indices.h"
#include "pacer/nn/causal_attention.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/rms_norm.h"

namespace pacer::target {
namespace {

// Keys and values of a sequence's new rows, after those that the cache already holds.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, std::optional<int64_t> window,
                  PanelCache* cache, int64_t layer) {
  if (cache == nullptr) return nn::causal_attention(q, k, v, window);
  nn::KeyValuePanels& panels = cache->layer(layer);
  panels.write(cache->length(), k, v);
  if (cache->length() == 0) return nn::causal_attention(q, k, v, window);
  const int64_t length = cache->length() + k.size(0);
  return nn::causal_attention(q, panels.keys(length), panels.values(length), window);
}

}  // namespace

TargetOutput long_forward(const ModelConfig& config, const ModelWeights& model, const nn::RopeTable& rope,
                          const TokenBatch& batch, const Taps& taps, const std::vector<PanelCache*>& caches) {
  const int64_t rows = batch.rows(), head_dim = config.head_dim;
  const c10::Device device = model.embedding.device();
  nn::RopeRows turns = rope.rows(batch.positions);
  turns = {turns.cos.to(device), turns.sin.to(device)};
  TargetOutput output;
  if (!taps.empty()) {
    output.tapped = at::empty({rows, static_cast<int64_t>(taps.size()), config.hidden_size}, model.embedding.options());
  }
  const auto tap = [&](int64_t id, const at::Tensor& hidden) {
    for (size_t i = 0; i < taps.size(); ++i) {
      if (taps[i] == id) output.tapped.select(1, static_cast<int64_t>(i)).copy_(hidden);
    }
  };

  at::Tensor hidden = at::index_select(model.embedding, 0, device::as_indices(batch.ids, device));
  tap(-1, hidden);
  for (int64_t index = 0; index < config.layers; ++index) {
    const LayerWeights& layer = model.layers[static_cast<size_t>(index)];
    const auto window =
        config.sliding_window.empty() ? std::nullopt : config.sliding_window[static_cast<size_t>(index)];
    at::Tensor normed = nn::rms_norm(hidden, layer.input_norm, config.rms_epsilon);
    at::Tensor q = nn::linear(normed, layer.q, layer.q_bias).view({rows, config.heads, head_dim});
    at::Tensor k = nn::linear(normed, layer.k, layer.k_bias).view({rows, config.kv_heads, head_dim});
    const at::Tensor v = nn::linear(normed, layer.v, layer.v_bias).view({rows, config.kv_heads, head_dim});
    if (config.qk_norm) {
      q = nn::rms_norm(q, layer.q_norm, config.rms_epsilon);
      k = nn::rms_norm(k, layer.k_norm, config.rms_epsilon);
    }
    q = nn::apply_rope(q, turns);
    k = nn::apply_rope(k, turns);
    at::Tensor mixed = at::empty_like(q);
    for (int64_t s = 0; s < batch.sequences(); ++s) {
      const int64_t begin = batch.starts[static_cast<size_t>(s)], end = batch.starts[static_cast<size_t>(s) + 1];
      if (begin == end) continue;
      mixed.slice(0, begin, end)
          .copy_(attend(q.slice(0, begin, end), k.slice(0, begin, end), v.slice(0, begin, end), window,
                        caches.empty() ? nullptr : caches[static_cast<size_t>(s)], index));
    }
    hidden = hidden + nn::linear(mixed.view({rows, config.heads * head_dim}), layer.o, layer.o_bias);
    normed = nn::rms_norm(hidden, layer.post_norm, config.rms_epsilon);
    const at::Tensor gate = at::silu(nn::linear(normed, layer.gate, layer.gate_bias));
    const at::Tensor inner = gate.mul_(nn::linear(normed, layer.up, layer.up_bias));
    hidden = hidden.add_(nn::linear(inner, layer.down, layer.down_bias));
    tap(index, hidden);
  }
  output.last = nn::rms_norm(hidden, model.final_norm, config.rms_epsilon);
  for (size_t s = 0; s < caches.size(); ++s) caches[s]->extend(batch.starts[s + 1] - batch.starts[s]);
  return output;
}

}  // namespace pacer::target
