#include "pacer/nn/causal_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/bfloat16.h"
#include "pacer/nn/clones.h"
#include "pacer/nn/plain.h"
#include "pacer/nn/row_kernels.h"

namespace pacer::nn {
namespace {

constexpr int64_t kQueryBlock = 128;  // queries whose scores exist at once

PACER_CLONES
void widen_row(const float* from, int64_t count, float* to) { std::copy_n(from, count, to); }
PACER_CLONES
void widen_row(const uint16_t* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = widen(from[i]);
}

// The last `queries` of the positions before `end`; scores [kv_heads, queries * group, keys] of the keys from
// first_key on. In place: softmax over what each query sees.
template <typename T>
void softmax_rows(const at::Tensor& scores, int64_t group, int64_t first_query, int64_t first_key, int64_t reach,
                  float scale) {
  const RowKernels<T>& kernels = row_kernels<T>();
  const int64_t keys = scores.size(2), padded = (keys + 15) / 16 * 16, per_head = scores.size(1);
  T* base = static_cast<T*>(scores.mutable_data_ptr());
  at::parallel_for(0, scores.size(0) * per_head, 1 + 16384 / keys, [&](int64_t begin, int64_t end) {
    std::vector<float> wide(static_cast<size_t>(padded));
    std::vector<T> probability(static_cast<size_t>(padded));
    for (int64_t i = begin; i < end; ++i) {
      T* row = base + i * keys;
      const int64_t position = first_query + i % per_head / group, until = position + 1 - first_key;
      const int64_t from = std::max<int64_t>(0, position - reach + 1 - first_key);
      widen_row(row, until, wide.data());
      kernels.softmax(wide.data(), from, until, padded, scale, wide.data(), probability.data());
      std::copy_n(probability.data(), keys, row);
    }
  });
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::optional<int64_t> window) {
  if (q.dim() != 3 || k.dim() != 3 || v.sizes() != k.sizes() || q.size(2) != k.size(2) || q.size(0) > k.size(0) ||
      k.size(1) == 0 || (q.scalar_type() != at::kFloat && q.scalar_type() != at::kBFloat16) ||
      q.size(1) % k.size(1) != 0 || (window && *window < 1)) {
    throw Error(ErrorKind::bug, "causal_attention: q " + c10::str(q.sizes()) + ", k " + c10::str(k.sizes()) + ", v " +
                                    c10::str(v.sizes()));
  }
  if (!device::own_attention(q)) return plain::causal_attention(q, k, v, window);
  const int64_t rows = q.size(0), length = k.size(0), past = length - rows, heads = q.size(1), dim = q.size(2);
  const int64_t kv_heads = k.size(1), group = heads / kv_heads, reach = std::min(window.value_or(length), length);
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(dim)));
  const at::Tensor all_keys = k.permute({1, 2, 0}), all_values = v.transpose(0, 1);  // [kv, D, L], [kv, L, D]
  at::Tensor out = at::empty({rows, heads, dim}, q.options());
  for (int64_t begin = 0; begin < rows; begin += kQueryBlock) {
    const int64_t end = std::min(begin + kQueryBlock, rows), queries = end - begin;
    const int64_t first_key = std::max<int64_t>(0, past + begin - reach + 1), last_key = past + end;
    // Queries that share a key head, one after the other: the group is part of the rows, nothing is repeated.
    const at::Tensor block = q.slice(0, begin, end).reshape({queries, kv_heads, group, dim}).permute({1, 0, 2, 3});
    const at::Tensor scores =
        at::bmm(block.reshape({kv_heads, queries * group, dim}), all_keys.slice(2, first_key, last_key)).contiguous();
    if (q.scalar_type() == at::kFloat) {
      softmax_rows<float>(scores, group, past + begin, first_key, reach, scale);
    } else {
      softmax_rows<uint16_t>(scores, group, past + begin, first_key, reach, scale);
    }
    const at::Tensor mixed = at::bmm(scores, all_values.slice(1, first_key, last_key));
    out.slice(0, begin, end)
        .view({queries, kv_heads, group, dim})
        .copy_(mixed.view({kv_heads, queries, group, dim}).permute({1, 0, 2, 3}));
  }
  return out;
}

}  // namespace pacer::nn
