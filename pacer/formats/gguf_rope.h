// Rotary settings of a GGUF file in the words of config.json.
#pragma once

#include <span>

#include "pacer/base/json.h"
#include "pacer/formats/gguf.h"

namespace pacer::formats {

// {"rope_type": ..., "rope_theta": ..., ...} as config.json has it under rope_parameters: default, linear, yarn or
// llama3. Throws Error{format} for a scheme that cannot be expressed exactly.
Json gguf_rope_parameters(const GgufFile& file, const std::string& architecture, int64_t head_dim);

// Llama 3 files carry no parameters but the divisor of each frequency (tensor rope_freqs.weight, [D/2]). With the
// wavelength w_i = 2 pi theta^(2i/D) the divisor is 1 for w_i < L/high, `factor` for w_i > L/low, and in between
// 1/d_i = (1 - s_i)/factor + s_i  with  s_i = (L/w_i - low)/(high - low).  Only L/low and L/high matter, so L is given
// (original_context) and low, high, factor follow. The result reproduces every divisor to 1e-5, or Error{format} is
// thrown.
Json llama3_rope_from_divisors(std::span<const float> divisors, double theta, int64_t original_context,
                               const std::string& place);

}  // namespace pacer::formats
