// The layers of a block draft: a context projected once from the target's taps, and blocks that attend to it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/draft/config.h"
#include "pacer/draft/weights.h"
#include "pacer/nn/block_attention.h"
#include "pacer/nn/rope.h"

namespace pacer::draft {

// Matrices that read the same rows are one matrix: fewer and larger products. Biases are undefined where there are
// none.
struct LayerWeights {
  at::Tensor input_norm, post_norm;  // [H]
  at::Tensor q, q_bias;              // [heads D, H], [heads D]
  at::Tensor kv, kv_bias;            // [2 kv_heads D, H]: keys, then values
  at::Tensor q_norm, k_norm;         // [D]
  at::Tensor o, o_bias;              // [H, heads D]
  at::Tensor gate_up, down;          // [2 I, H], [H, I]
};
struct BackboneWeights {
  at::Tensor fc, hidden_norm, norm;  // [H, m H], [H], [H]
  std::vector<LayerWeights> layers;
};

// Copies of the tensors of a draft, in `dtype`, arranged for the backbone.
BackboneWeights arrange(const DraftConfig& config, const DraftWeights& weights, at::ScalarType dtype);

struct KeysValues {
  at::Tensor k, v;  // [T, kv_heads, D]; keys are normed and rotated
};

// Functions of rows; differentiable in weights and rows. Context rows are the taps of tokens that the target has seen.
class Backbone {
 public:
  Backbone(const DraftConfig& config, nn::RopeTable rope) : config_(config), rope_(std::move(rope)) {}

  // tapped [T, m, H] -> hidden_norm(fc(tapped)) [T, H], read by every layer.
  at::Tensor context(const BackboneWeights& weights, const at::Tensor& tapped) const;
  KeysValues context_keys(const LayerWeights& layer, const at::Tensor& context, const nn::RopeRows& positions) const;

  // x [B * K, H]: the block stream before layer `index`; returns it behind the layer.
  at::Tensor layer(const LayerWeights& weights, int64_t index, const at::Tensor& x, const KeysValues& context,
                   const nn::BlockLayout& layout, const nn::RopeRows& positions) const;
  at::Tensor final_norm(const BackboneWeights& weights, const at::Tensor& x) const;

  const DraftConfig& config() const { return config_; }
  const nn::RopeTable& rope() const { return rope_; }

 private:
  KeysValues keys_values(const LayerWeights& layer, const at::Tensor& rows, const nn::RopeRows& positions) const;

  DraftConfig config_;
  nn::RopeTable rope_;
};

}  // namespace pacer::draft
