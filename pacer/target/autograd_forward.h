// The same forward with a graph behind it: for whole-model training and for proving gradients.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/nn/rope.h"
#include "pacer/target/config.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"

namespace pacer::target {

// The forward in pieces, for whoever moves weights between them: embed(), layer(0) ... layer(n - 1), logits(). Holds
// the tensors of `weights` (Hugging Face names, f32) and no copies, so they may change between two calls. Everything is
// differentiable in them. Attention keeps its [heads, T, T] probabilities per sequence for the backward.
class DifferentiableModel {
 public:
  // Throws Error{format} when a weight is missing.
  DifferentiableModel(const ModelConfig& config, const WeightMap& weights);

  at::Tensor embed(const TokenBatch& batch) const;  // [T, H]
  // hidden, result: [T, H]; turns: rope_rows() of the batch.
  at::Tensor layer(int64_t index, const at::Tensor& hidden, const TokenBatch& batch, const nn::RopeRows& turns) const;
  at::Tensor normed(const at::Tensor& hidden) const;      // [T, H]: what the head reads
  at::Tensor logits(const at::Tensor& hidden) const;      // [T, V]
  const at::Tensor& head() const { return model_.head; }  // [V, H]
  // Of all layers, normed: [T, H].
  at::Tensor last_hidden(const TokenBatch& batch) const;
  nn::RopeRows rope_rows(const TokenBatch& batch) const;

  // The weights that embed() (place 0), layer(place - 1) and logits() (the last place) read.
  std::vector<std::vector<std::string>> parameters_by_place() const;

 private:
  ModelConfig config_;
  ModelWeights model_;
};

// Logits [T, V] f32 of packed rows: all pieces, one behind the other.
at::Tensor differentiable_logits(const ModelConfig& config, const WeightMap& weights, const TokenBatch& batch);

}  // namespace pacer::target
