// From the RoPE settings of a config.json to the frequencies of a model.
#pragma once

#include <cstdint>

#include "pacer/nn/rope.h"
#include "pacer/target/config.h"

namespace pacer::target {

// Default, linear (Chen et al. 2023), llama3 (the "NTK by parts" of Llama 3.1) and YaRN (Peng et al. 2023, with the
// attention factor, mscale and truncation of its published variants), evaluated in f32 step by step as the reference
// implementation does: at position 131071 one ulp in a frequency is a visible angle.
//
// head_dim: D, even. max_position: the model's, the original length of YaRN where the settings give none.
// Throws Error{format} for a type that is not one of the four.
nn::RopeTable rope_table(const RopeConfig& config, int64_t head_dim, int64_t max_position);

}  // namespace pacer::target
