#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/softmax.h>

#include "pacer/device/kernels.h"
#include "pacer/device/plugin.h"
#include "pacer/nn/plain.h"

namespace pacer::nn::plain {
namespace {

constexpr int64_t kQueryBlock = 128;  // queries of one sequence whose scores exist at once
constexpr double kHidden = -std::numeric_limits<double>::infinity();

// [N, heads, D] -> [kv_heads, N * group, D]: query heads that share a key head are rows of one matrix.
at::Tensor by_kv_head(const at::Tensor& x, int64_t kv_heads) {
  const int64_t rows = x.size(0), group = x.size(1) / kv_heads, dim = x.size(2);
  return x.reshape({rows, kv_heads, group, dim}).permute({1, 0, 2, 3}).reshape({kv_heads, rows * group, dim});
}

at::Tensor by_row(const at::Tensor& x, int64_t group) {
  const int64_t kv_heads = x.size(0), rows = x.size(1) / group, dim = x.size(2);
  return x.view({kv_heads, rows, group, dim}).permute({1, 0, 2, 3}).reshape({rows, kv_heads * group, dim});
}

at::Tensor longs(const std::vector<int64_t>& values, const at::Tensor& like) {
  const auto size = static_cast<int64_t>(values.size());
  return at::from_blob(const_cast<int64_t*>(values.data()), {size}, at::kLong).clone().to(like.device());
}

// Blocks [first, last) of one sequence against its context rows [begin, begin + reach).
struct Part {
  int64_t first, last, begin, reach;
};

// Each block against the rows that the part's last block reaches; attention of few blocks, so that scores stay small.
at::Tensor attend(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block,
                  const at::Tensor& k_context, const at::Tensor& v_context, const BlockLayout& layout, double scale,
                  std::optional<int64_t> window, const Part& part) {
  const int64_t blocks = part.last - part.first, slots = layout.block_size, kv_heads = k_block.size(1);
  const int64_t group = q.size(1) / kv_heads, dim = q.size(2), from = part.first * slots, to = part.last * slots;
  const at::Tensor own_q = by_kv_head(q.slice(0, from, to).to(at::kFloat), kv_heads);  // [kv, blocks slots group, D]
  // Own slots: a product per block.
  const auto per_block = [&](const at::Tensor& rows) {
    return rows.slice(0, from, to).to(at::kFloat).view({blocks, slots, kv_heads, dim}).permute({2, 0, 1, 3});
  };
  const at::Tensor q_blocks = own_q.view({kv_heads, blocks, slots * group, dim});
  at::Tensor scores = at::matmul(q_blocks, per_block(k_block).transpose(2, 3)) * scale;  // [kv, blocks, s g, slots]
  const at::Tensor slot = at::arange(slots, q.options().dtype(at::kLong));
  if (window) {
    const at::Tensor later = slot.unsqueeze(0) > slot.unsqueeze(1);  // [slots, slots]
    scores = scores.view({kv_heads, blocks, slots, group, slots})
                 .masked_fill(later.view({1, 1, slots, 1, slots}), kHidden)
                 .view({kv_heads, blocks, slots * group, slots});
  }
  if (part.reach == 0) {
    const at::Tensor mixed = at::matmul(at::softmax(scores, -1), per_block(v_block));
    return by_row(mixed.reshape({kv_heads, blocks * slots * group, dim}), group);
  }

  const at::Tensor k = k_context.slice(0, part.begin, part.begin + part.reach).to(at::kFloat).permute({1, 2, 0});
  const at::Tensor v = v_context.slice(0, part.begin, part.begin + part.reach).to(at::kFloat).transpose(0, 1);
  const at::Tensor row = at::arange(part.reach, q.options().dtype(at::kLong)).unsqueeze(0);
  const at::Tensor prefix =
      longs({layout.prefix.begin() + part.first, layout.prefix.begin() + part.last}, q).unsqueeze(1);
  at::Tensor hidden = (row >= prefix).unsqueeze(1).expand({blocks, slots, part.reach});  // [blocks, slots, reach]
  if (window) {
    const at::Tensor first_seen = prefix + slot.unsqueeze(0) - (window.value_or(1) - 1);  // [blocks, slots]
    hidden = hidden.logical_or(row.unsqueeze(0) < first_seen.unsqueeze(2));
  }
  const at::Tensor over = (at::bmm(own_q, k) * scale)
                              .view({kv_heads, blocks, slots, group, part.reach})
                              .masked_fill(hidden.unsqueeze(2).unsqueeze(0), kHidden)
                              .view({kv_heads, blocks, slots * group, part.reach});
  const at::Tensor weights = at::softmax(at::cat({over, scores}, -1), -1);
  const at::Tensor context =
      at::bmm(weights.slice(3, 0, part.reach).reshape({kv_heads, blocks * slots * group, part.reach}), v);
  const at::Tensor own = at::matmul(weights.slice(3, part.reach, part.reach + slots), per_block(v_block));
  return by_row(context + own.reshape({kv_heads, blocks * slots * group, dim}), group);
}

}  // namespace

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::optional<int64_t> window) {
  const int64_t rows = q.size(0), length = k.size(0), past = length - rows, kv_heads = k.size(1);
  const int64_t group = q.size(1) / kv_heads, reach = std::min(window.value_or(length), length);
  const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(2)));
  const bool automatic = device::kernel_paths().attention == device::KernelPath::automatic;
  auto* const fused = automatic ? device::fused_operators(q.device()).attention : nullptr;
  const auto by_head = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0).contiguous(); };  // [1, N, R, D]
  // Rounded to the dtype of q where the kernels and the reference round: scores, their scaling, the weights.
  const at::Tensor keys = k.permute({1, 2, 0}), values = v.transpose(0, 1);  // [kv, D, L], [kv, L, D]
  std::vector<at::Tensor> parts;
  for (int64_t begin = 0; begin < rows; begin += kQueryBlock) {
    const int64_t end = std::min(begin + kQueryBlock, rows), queries = end - begin;
    const int64_t first_key = std::max<int64_t>(0, past + begin - reach + 1), last_key = past + end;
    const at::Tensor query = at::arange(past + begin, past + end, q.options().dtype(at::kLong)).unsqueeze(1);
    const at::Tensor key = at::arange(first_key, last_key, q.options().dtype(at::kLong)).unsqueeze(0);
    const at::Tensor hidden = (key > query).logical_or(key <= query - reach);  // [queries, keys]
    if (fused != nullptr) {
      parts.push_back(fused(by_head(q.slice(0, begin, end)), by_head(k.slice(0, first_key, last_key)),
                            by_head(v.slice(0, first_key, last_key)), hidden.logical_not(), scale)
                          .squeeze(0)
                          .transpose(0, 1)
                          .contiguous());
      continue;
    }
    const at::Tensor scores =
        (at::bmm(by_kv_head(q.slice(0, begin, end), kv_heads), keys.slice(2, first_key, last_key)) * scale)
            .to(at::kFloat)
            .view({kv_heads, queries, group, last_key - first_key})
            .masked_fill(hidden.unsqueeze(1).unsqueeze(0), kHidden)
            .view({kv_heads, queries * group, last_key - first_key});
    const at::Tensor weights = at::softmax(scores, -1).to(q.scalar_type());
    const at::Tensor mixed = at::bmm(weights, values.slice(1, first_key, last_key));
    parts.push_back(by_row(mixed, group).to(q.scalar_type()));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block,
                           const at::Tensor& k_context, const at::Tensor& v_context, const BlockLayout& layout,
                           double scale, std::optional<int64_t> window) {
  const int64_t at_once = std::max<int64_t>(1, kQueryBlock / layout.block_size);
  std::vector<at::Tensor> parts;
  for (size_t s = 0; s + 1 < layout.block_starts.size(); ++s) {
    const int64_t end = layout.block_starts[s + 1];
    for (int64_t first = layout.block_starts[s]; first < end; first += at_once) {
      const int64_t last = std::min(first + at_once, end);
      const Part part{first, last, layout.context_starts[s], layout.prefix[static_cast<size_t>(last - 1)]};
      parts.push_back(attend(q, k_block, v_block, k_context, v_context, layout, scale, window, part));
    }
  }
  return (parts.size() == 1 ? parts.front() : at::cat(parts, 0)).to(q.scalar_type());
}

}  // namespace pacer::nn::plain
