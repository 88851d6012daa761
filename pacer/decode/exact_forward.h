// Any number of rows through a target in calls that it is exact for.
#pragma once

#include <cstdint>
#include <vector>

#include "pacer/target/target.h"

namespace pacer::decode {

// Up to so many rows of a sequence per call, a row has the same bits whatever else is computed with it
// (Target::forward).
constexpr int64_t kExactRows = 16;

// Continues `cache` by `ids` in pieces of at most kExactRows. Prompts go this way too: it is faster than one long call
// on the processors it was measured on (bf16 and f32, 24 to 300 rows: by a fifth to a half), and a text then depends
// neither on how its prompt was cut nor on what it was batched with.
//   returns tapped [n, m, H] (undefined without taps) and last [n, H]
target::TargetOutput forward_exact(const target::Target& target, const std::vector<int64_t>& ids,
                                   const target::Taps& taps, target::KvCache& cache);

}  // namespace pacer::decode
