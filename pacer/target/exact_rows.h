// Whole sequences through the decoding kernels: hidden states whose bits do not depend on what they are computed with.
#pragma once

#include <cstdint>
#include <vector>

#include "pacer/target/target.h"

namespace pacer::target {

// Continues caches[s] by sequences[s], at most kExactRows rows of every sequence per call of the target. Prompts go
// this way too: it is faster than one long call on the processors it was measured on (bf16 and f32, 24 to 300 rows: by
// a fifth to a half), and a text then depends neither on how its prompt was cut nor on what it was batched with.
// Returns tapped [T, m, H] (undefined without taps) and last [T, H], sequence after sequence. An empty sequence takes
// no part.
TargetOutput forward_exact(const Target& target, const std::vector<std::vector<int64_t>>& sequences, const Taps& taps,
                           const std::vector<KvCache*>& caches);

// Whole sequences from their first position, with caches that are gone afterwards.
TargetOutput forward_exact(const Target& target, const std::vector<std::vector<int64_t>>& sequences, const Taps& taps);

// log of the sum of exponentials of the logits of last [R, H]: [R] f32 in host memory, the bits of
// nn::log_sums_of(target.logits(some of the rows)), because a row's logits do not depend on the others either.
at::Tensor exact_log_sums(const Target& target, const at::Tensor& last);

}  // namespace pacer::target
