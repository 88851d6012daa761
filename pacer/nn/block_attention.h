// Attention of block drafts: every block sees a prefix of its sequence's context and its own slots, and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// Blocks of packed sequences. Sequence s owns context rows [context_starts[s], context_starts[s + 1]) and blocks
// [block_starts[s], block_starts[s + 1]); block b owns slot rows [b * block_size, (b + 1) * block_size).
struct BlockLayout {
  std::vector<int64_t> context_starts{0};  // S + 1
  std::vector<int64_t> block_starts{0};    // S + 1
  std::vector<int64_t> prefix;             // [B] context rows that a block sees, ascending within a sequence
  int64_t block_size = 1;

  int64_t blocks() const { return static_cast<int64_t>(prefix.size()); }
};

// softmax(scale * q k^T) v, where slot j of block b sees the first prefix[b] context rows of its sequence and all slots
// of its own block. With a window w it sees of the context only rows >= prefix[b] + j - (w - 1), and of its block only
// slots <= j (the slot's own position is prefix[b] + j).
//
//   q                     [B * K, heads, D]     f32 or bf16
//   k_block, v_block      [B * K, kv_heads, D]  heads is a multiple of kv_heads: head h reads kv head h * kv_heads /
//   heads k_context, v_context  [T, kv_heads, D] returns               [B * K, heads, D]     dtype of q
//
// No mask exists and no score outside of a prefix is kept: context tiles pass under all blocks that reach them, the
// block's own slots follow, and the partial results merge through their running maximum and sum, which is exact.
// Scores, softmax and sums are f32 in every dtype. Differentiable in all five; the backward recomputes the scores from
// one log-sum-exp per row and head. Throws Error{bug} when layout and shapes do not fit.
at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block,
                           const at::Tensor& k_context, const at::Tensor& v_context, const BlockLayout& layout,
                           double scale, std::optional<int64_t> window = std::nullopt);

}  // namespace pacer::nn
