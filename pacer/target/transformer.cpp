#include "pacer/target/transformer.h"

#include <algorithm>

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <c10/core/GradMode.h>

#include "pacer/base/error.h"
#include "pacer/target/batch_checks.h"
#include "pacer/target/long_forward.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::target {

TokenBatch TokenBatch::single(const std::vector<int64_t>& ids, int64_t first_position) {
  TokenBatch batch = packed({ids});
  batch.positions.add_(first_position);
  return batch;
}

TokenBatch TokenBatch::packed(const std::vector<std::vector<int64_t>>& sequences) {
  std::vector<int64_t> ids, positions;
  TokenBatch batch;
  batch.starts.push_back(0);
  for (const std::vector<int64_t>& sequence : sequences) {
    ids.insert(ids.end(), sequence.begin(), sequence.end());
    for (size_t i = 0; i < sequence.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    batch.starts.push_back(static_cast<int64_t>(ids.size()));
  }
  batch.ids = at::tensor(ids, at::kLong);
  batch.positions = at::tensor(positions, at::kLong);
  return batch;
}

Transformer::Transformer(ModelConfig config, WeightMap weights, at::ScalarType dtype,
                         std::shared_ptr<const StoredMatrices> stored)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      model_(arrange(config_, weights_, std::move(stored))),
      dtype_(dtype),
      rope_(rope_table(config_.rope, config_.head_dim, config_.max_position)) {}

std::unique_ptr<KvCache> Transformer::new_cache(int64_t capacity_hint) const {
  return std::make_unique<PanelCache>(config_, RowForward::cache_dtype(model_, dtype_), capacity_hint);
}

std::vector<PanelCache*> Transformer::checked(const TokenBatch& batch, const Taps& taps,
                                              const std::vector<KvCache*>& caches) const {
  check_batch(config_, batch, taps, caches);
  std::vector<PanelCache*> panels;
  for (KvCache* cache : caches) {
    auto* own = dynamic_cast<PanelCache*>(cache);
    if (own == nullptr || own->layers() != config_.layers || own->layer(0).kv_heads() != config_.kv_heads ||
        own->layer(0).head_dim() != config_.head_dim ||
        own->layer(0).dtype() != RowForward::cache_dtype(model_, dtype_)) {
      throw Error(ErrorKind::bug, "Target::forward: a cache of another model");
    }
    panels.push_back(own);
  }
  return panels;
}

TargetOutput Transformer::forward(const TokenBatch& batch, const Taps& taps,
                                  const std::vector<KvCache*>& caches) const {
  const std::vector<PanelCache*> panels = checked(batch, taps, caches);
  const at::NoGradGuard no_grad;
  bool few = !panels.empty() && batch.rows() > 0;
  for (size_t s = 0; s < panels.size(); ++s) few &= batch.starts[s + 1] - batch.starts[s] <= RowForward::kMostRows;
  if (few) return row_forward().forward(batch, taps, panels);
  if (model_.stored) return forward_in_pieces(batch, taps, panels);
  return long_forward(config_, model_, rope_, batch, taps, panels);
}

TargetOutput Transformer::forward_in_pieces(const TokenBatch& batch, const Taps& taps,
                                            const std::vector<PanelCache*>& caches) const {
  TargetOutput output;
  const at::TensorOptions options = at::TensorOptions().dtype(dtype_);
  output.last = at::empty({batch.rows(), config_.hidden_size}, options);
  if (!taps.empty()) {
    output.tapped = at::empty({batch.rows(), static_cast<int64_t>(taps.size()), config_.hidden_size}, options);
  }
  for (int64_t s = 0; s < batch.sequences(); ++s) {
    const int64_t begin = batch.starts[static_cast<size_t>(s)], end = batch.starts[static_cast<size_t>(s) + 1];
    std::unique_ptr<PanelCache> own;
    if (caches.empty() && end > begin) {
      own = std::make_unique<PanelCache>(config_, RowForward::cache_dtype(model_, dtype_), end - begin);
    }
    PanelCache* cache = caches.empty() ? own.get() : caches[static_cast<size_t>(s)];
    for (int64_t row = begin; row < end; row += RowForward::kMostRows) {
      const int64_t next = std::min(end, row + RowForward::kMostRows);
      const TokenBatch piece{batch.ids.slice(0, row, next), batch.positions.slice(0, row, next), {0, next - row}};
      const TargetOutput part = row_forward().forward(piece, taps, {cache});
      output.last.slice(0, row, next).copy_(part.last);
      if (!taps.empty()) output.tapped.slice(0, row, next).copy_(part.tapped);
    }
  }
  return output;
}

at::Tensor Transformer::embed(const at::Tensor& ids) const {
  if (!model_.stored) return model_.embedding.index_select(0, ids);
  const at::Tensor dense = ids.contiguous();
  at::Tensor rows = at::empty({dense.numel(), config_.hidden_size}, at::TensorOptions().dtype(dtype_));
  for (int64_t i = 0; i < dense.numel(); ++i) {
    model_.stored->embedding_row(dense.const_data_ptr<int64_t>()[i],
                                 rows.mutable_data_ptr<float>() + i * config_.hidden_size);
  }
  return rows;
}

at::Tensor Transformer::logits(const at::Tensor& last) const {
  const at::NoGradGuard no_grad;
  return head_rows().logits(last);
}

const RowForward& Transformer::row_forward() const {
  const std::lock_guard lock(packing_);
  if (!row_forward_) row_forward_ = RowForward::make(config_, model_, rope_, dtype_);
  return *row_forward_;
}

const HeadRows& Transformer::head_rows() const {
  const std::lock_guard lock(packing_);
  if (!head_rows_) head_rows_ = HeadRows::make(config_, model_, dtype_);
  return *head_rows_;
}

at::Tensor Transformer::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found != weights_.end()) return found->second;
  const bool tied_head = config_.tied_embeddings && name == "lm_head.weight";
  if (model_.stored) {
    const std::string stored = tied_head ? "model.embed_tokens.weight" : name;
    if (model_.stored->model().has(stored)) return model_.stored->dense(stored, dtype_);
  } else if (tied_head) {
    return model_.head;
  }
  throw Error(ErrorKind::format, "the target has no weight " + name);
}

uint64_t Transformer::weight_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : weights_) sum += tensor.nbytes();
  const std::lock_guard lock(packing_);
  if (row_forward_) sum += row_forward_->bytes();
  if (head_rows_) sum += head_rows_->bytes();
  return sum;
}

}  // namespace pacer::target
