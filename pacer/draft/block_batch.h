// A plan and packed tokens, laid out as the rows that the backbone computes.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/draft/block_plan.h"
#include "pacer/draft/features.h"
#include "pacer/nn/block_attention.h"
#include "pacer/nn/rope.h"

namespace pacer::draft {

// Only live blocks, and of each sequence only the context rows that its last block sees: nothing else influences them.
struct BlockBatch {
  at::Tensor context_rows;       // [C] i64 packed rows
  at::Tensor context_positions;  // [C] i64
  at::Tensor ids;                // [B * K] i64: the anchor's token, then mask tokens
  at::Tensor positions;          // [B * K] i64: anchor + slot
  at::Tensor previous_ids;       // [B * K] i64: the token before each slot's label, teacher-forced
  nn::BlockLayout layout;
};
BlockBatch block_batch(const DraftConfig& config, const BlockPlan& plan, const PackedTokens& tokens);

// Blocks [begin, end) of a batch, with all of its context.
BlockBatch blocks_between(const BlockBatch& batch, int64_t begin, int64_t end);

// The host view of a batch; `batch` must outlive it. Throws Error{bug} when ids or mask are not dense on the host.
PackedTokens host_tokens(const FeatureBatch& batch);

at::Tensor index_tensor(const std::vector<int64_t>& values);  // a copy, i64

// Cosines and sines of all positions so far: a step looks its rows up instead of computing them.
class RopeCache {
 public:
  nn::RopeRows rows(const nn::RopeTable& table, const at::Tensor& positions);

 private:
  nn::RopeRows all_;
};

}  // namespace pacer::draft
