// The same forward with a graph behind it: for whole-model training and for proving gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include "pacer/target/config.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"

namespace pacer::target {

// Logits [T, V] f32 of packed rows, differentiable in every tensor of `weights` (Hugging Face names, f32). Attention
// keeps its [heads, T, T] probabilities per sequence for the backward.
// Throws Error{format} when a weight is missing.
at::Tensor differentiable_logits(const ModelConfig& config, const WeightMap& weights, const TokenBatch& batch);

}  // namespace pacer::target
