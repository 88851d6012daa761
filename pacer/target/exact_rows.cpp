#include "pacer/target/exact_rows.h"

#include <algorithm>
#include <memory>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include "pacer/nn/vocab_loss.h"

namespace pacer::target {
namespace {

// What one call of the target computes, and where its rows belong.
struct Pass {
  std::vector<int64_t> ids, positions, starts = {0};
  std::vector<KvCache*> caches;
  std::vector<int64_t> rows;  // of the result, one per sequence: its first row

  void add(const std::vector<int64_t>& sequence, int64_t from, int64_t first_row, KvCache* cache) {
    const auto end = std::min<int64_t>(static_cast<int64_t>(sequence.size()), from + kExactRows);
    for (int64_t i = from; i < end; ++i) {
      ids.push_back(sequence[static_cast<size_t>(i)]);
      positions.push_back(cache->length() + i - from);
    }
    starts.push_back(static_cast<int64_t>(ids.size()));
    caches.push_back(cache);
    rows.push_back(first_row + from);
  }
};

at::Tensor sized(const at::Tensor& part, int64_t rows) {
  std::vector<int64_t> sizes = part.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, part.options());
}

}  // namespace

TargetOutput forward_exact(const Target& target, const std::vector<std::vector<int64_t>>& sequences, const Taps& taps,
                           const std::vector<KvCache*>& caches) {
  std::vector<int64_t> first_row = {0};
  int64_t longest = 0;
  for (const auto& sequence : sequences) {
    first_row.push_back(first_row.back() + static_cast<int64_t>(sequence.size()));
    longest = std::max(longest, static_cast<int64_t>(sequence.size()));
  }
  TargetOutput result;
  for (int64_t from = 0; from < longest; from += kExactRows) {
    Pass pass;
    for (size_t s = 0; s < sequences.size(); ++s) {
      if (static_cast<int64_t>(sequences[s].size()) > from) pass.add(sequences[s], from, first_row[s], caches[s]);
    }
    const TargetOutput part = target.forward(
        {at::tensor(pass.ids, at::kLong), at::tensor(pass.positions, at::kLong), pass.starts}, taps, pass.caches);
    if (part.last.size(0) == first_row.back()) return part;  // the only pass, and its rows are in order
    if (!result.last.defined()) {
      result.last = sized(part.last, first_row.back());
      if (!taps.empty()) result.tapped = sized(part.tapped, first_row.back());
    }
    for (size_t i = 0; i < pass.rows.size(); ++i) {
      const int64_t start = pass.starts[i], count = pass.starts[i + 1] - start;
      result.last.narrow(0, pass.rows[i], count).copy_(part.last.narrow(0, start, count));
      if (!taps.empty()) result.tapped.narrow(0, pass.rows[i], count).copy_(part.tapped.narrow(0, start, count));
    }
  }
  return result;
}

TargetOutput forward_exact(const Target& target, const std::vector<std::vector<int64_t>>& sequences, const Taps& taps) {
  std::vector<std::unique_ptr<KvCache>> owned;
  std::vector<KvCache*> caches;
  for (const auto& sequence : sequences) {
    owned.push_back(target.new_cache(static_cast<int64_t>(sequence.size())));
    caches.push_back(owned.back().get());
  }
  return forward_exact(target, sequences, taps, caches);
}

at::Tensor exact_log_sums(const Target& target, const at::Tensor& last) {
  constexpr int64_t kRows = 256;  // whose logits exist at once
  const at::Tensor sums = at::empty({last.size(0)}, at::kFloat);
  for (int64_t begin = 0; begin < last.size(0); begin += kRows) {
    const int64_t count = std::min(kRows, last.size(0) - begin);
    const at::Tensor rows = last.narrow(0, begin, count).to(target.device());
    sums.narrow(0, begin, count).copy_(nn::log_sums_of(target.logits(rows)));
  }
  return sums;
}

}  // namespace pacer::target
