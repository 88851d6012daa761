#include "pacer/decode/exact_forward.h"

#include <algorithm>

#include <ATen/ops/cat.h>

namespace pacer::decode {

target::TargetOutput forward_exact(const target::Target& target, const std::vector<int64_t>& ids,
                                   const target::Taps& taps, target::KvCache& cache) {
  std::vector<at::Tensor> tapped, last;
  for (size_t begin = 0; begin < ids.size(); begin += kExactRows) {
    const size_t end = std::min(ids.size(), begin + static_cast<size_t>(kExactRows));
    const std::vector<int64_t> piece(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                     ids.begin() + static_cast<std::ptrdiff_t>(end));
    const target::TargetOutput output =
        target.forward(target::TokenBatch::single(piece, cache.length()), taps, {&cache});
    last.push_back(output.last);
    if (!taps.empty()) tapped.push_back(output.tapped);
  }
  if (last.size() == 1) return {taps.empty() ? at::Tensor() : tapped[0], last[0]};
  return {taps.empty() ? at::Tensor() : at::cat(tapped), at::cat(last)};
}

}  // namespace pacer::decode
