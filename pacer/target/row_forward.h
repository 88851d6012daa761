// Decoding: few rows per sequence through the row kernels, with bits that do not depend on the other rows.
#pragma once

#include <memory>
#include <vector>

#include "pacer/nn/rope.h"
#include "pacer/target/kv_cache.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"

namespace pacer::target {

// A packed copy of the layers' weights. Immutable, usable from several threads.
class RowForward {
 public:
  static constexpr int64_t kMostRows = kExactRows;  // of one sequence

  // config, model and rope must outlive the result.
  static std::unique_ptr<const RowForward> make(const ModelConfig& config, const ModelWeights& model,
                                                const nn::RopeTable& rope, at::ScalarType dtype);
  // What keys and values are kept in: the rows' dtype, but bf16 beside stored weights. There a cache in f32 would soon
  // weigh as much as the weights, and its rounding is far below that of the rows before a matrix.
  static at::ScalarType cache_dtype(const ModelWeights& model, at::ScalarType dtype);
  virtual ~RowForward() = default;

  // One cache per sequence, which gets the sequence's rows. Arguments are checked by the caller.
  virtual TargetOutput forward(const TokenBatch& batch, const Taps& taps,
                               const std::vector<PanelCache*>& caches) const = 0;
  virtual uint64_t bytes() const = 0;
};

// Logits of any number of rows by the same kernels: f32 sums that are never rounded to bf16, in which a tenth of the
// top two would tie.
class HeadRows {
 public:
  static std::unique_ptr<const HeadRows> make(const ModelConfig& config, const ModelWeights& model,
                                              at::ScalarType dtype);
  virtual ~HeadRows() = default;
  virtual at::Tensor logits(const at::Tensor& last) const = 0;  // [n, H] -> [n, V] f32
  virtual uint64_t bytes() const = 0;
};

}  // namespace pacer::target
