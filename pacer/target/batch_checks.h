// What a caller of Target::forward can get wrong, refused before any row is written to a cache.
#pragma once

#include "pacer/target/config.h"
#include "pacer/target/target.h"

namespace pacer::target {

// Throws Error{bug} for shapes, dtypes, starts and a wrong number of caches or the same cache twice; Error{data} for an
// id outside of the vocabulary; Error{usage} for a layer that cannot be tapped.
void check_batch(const ModelConfig& config, const TokenBatch& batch, const Taps& taps,
                 const std::vector<KvCache*>& caches);

}  // namespace pacer::target
