// Prompts and training features: many rows at once through library products.
#pragma once

#include <vector>

#include "pacer/nn/rope.h"
#include "pacer/target/kv_cache.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"

namespace pacer::target {

// caches: one per sequence, or empty. Arguments are checked by the caller. Rows are added to the caches.
TargetOutput long_forward(const ModelConfig& config, const ModelWeights& model, const nn::RopeTable& rope,
                          const TokenBatch& batch, const Taps& taps, const std::vector<PanelCache*>& caches);

}  // namespace pacer::target
