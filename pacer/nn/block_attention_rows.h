// The row loops of block attention. "Rows" are (slot, query head of the group) pairs of one kv head.
#pragma once

#include <cstdint>

namespace pacer::nn::detail {

// One row against one context tile; only columns [begin, end) are visible.
struct PrefixRow {
  float* scores;  // [n] raw scores in; exp(scale * score - max) out, 0 where not visible
  int64_t n, begin, end;
  float scale;
  float* max;  // running maximum and sum of the row
  float* sum;
};

// Recomputes probabilities from the row's log-sum-exp.
struct PrefixRowBackward {
  float* scores;    // [n] raw scores in; probabilities out, 0 where not visible
  float* d_scores;  // [n] d probabilities in; d scores out, 0 where not visible
  int64_t n, begin, end;
  float scale, log_sum, delta;  // delta = sum over the head's width of d_out * out
};

// The slots of one block and one kv head: rows (slot, group) of q, slots of k and v, all of width D and dense.
struct OwnTile {
  const float* q;  // [K * groups, D]
  const float* k;  // [K, D]
  const float* v;  // [K, D]
  int64_t slots, groups, width;
  float scale;
  bool causal;  // slot j sees slots <= j; else all
};
struct OwnTileForward {
  float* out;        // [K * groups, D] sum of exp(score - max) v over the prefix in; the merged attention out
  float* max;        // [K * groups] of the prefix in; log-sum-exp over everything out
  const float* sum;  // [K * groups] of the prefix
};
struct OwnTileBackward {
  const float* d_out;    // [K * groups, D]
  const float* log_sum;  // [K * groups]
  const float* delta;    // [K * groups]
  float* d_q;            // [K * groups, D] added to
  float* d_k;            // [K, D] added to
  float* d_v;            // [K, D] added to
};

struct BlockRowKernels {
  float (*prefix)(const PrefixRow& row);  // returns the factor for what was summed under the older maximum
  void (*prefix_backward)(const PrefixRowBackward& row);
  void (*own)(const OwnTile& tile, const OwnTileForward& forward);
  void (*own_backward)(const OwnTile& tile, const OwnTileBackward& backward);
  float (*dot)(const float* a, const float* b, int64_t n);
};

// The fastest that this processor runs; the plain ones are what the others are tested against.
const BlockRowKernels& block_row_kernels();
const BlockRowKernels& block_row_kernels_plain();
const BlockRowKernels* block_row_kernels_avx2();    // null: not for this processor
const BlockRowKernels* block_row_kernels_avx512();  // null: not for this processor

}  // namespace pacer::nn::detail
