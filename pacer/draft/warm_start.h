// Starting a draft from the target's own layers instead of noise.
#pragma once

#include "pacer/draft/config.h"
#include "pacer/draft/features.h"
#include "pacer/draft/weights.h"
#include "pacer/target/target.h"

namespace pacer::draft {

// Overwrites `weights` (f32, the names of parameter_shapes, already initialised):
//   layers       the target's last ones, in order; biases that the draft lacks are dropped
//   q_norm, k_norm   the RMS per channel of the target's q and k over the tokens of `sample`: a norm of 1 would change
//                the scale of the attention logits of a target without such norms; a target's own norms are kept
//   fc           a tenth of its noise, plus the identity on the newest tap
//   hidden_norm  the mean of the copied layers' input norms: the context takes the place of their normed input
//   norm         the target's final norm
// Throws Error{usage} when the draft's layers and the target's differ in size.
void warm_start(const DraftConfig& config, const target::Target& target, const FeatureBatch& sample,
                DraftWeights& weights);

}  // namespace pacer::draft
