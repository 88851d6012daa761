// The target over Pacer's own kernels: Llama, Qwen2 and Qwen3 differ by their configuration only.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "pacer/nn/rope.h"
#include "pacer/target/kv_cache.h"
#include "pacer/target/row_forward.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"

namespace pacer::target {

class Transformer final : public Target {
 public:
  // Weights in `dtype`. stored: where the matrices come from when `weights` has none; dtype is f32 then.
  // Throws Error{format} when one is missing.
  Transformer(ModelConfig config, WeightMap weights, at::ScalarType dtype,
              std::shared_ptr<const StoredMatrices> stored = nullptr);

  const ModelConfig& config() const override { return config_; }
  c10::Device device() const override { return model_.final_norm.device(); }
  at::ScalarType dtype() const override { return dtype_; }
  std::unique_ptr<KvCache> new_cache(int64_t capacity_hint) const override;
  TargetOutput forward(const TokenBatch& batch, const Taps& taps, const std::vector<KvCache*>& caches) const override;
  at::Tensor logits(const at::Tensor& last) const override;
  bool has_stored_weights() const override { return model_.stored != nullptr; }
  at::Tensor embed(const at::Tensor& ids) const override;
  at::Tensor embedding_weight() const override { return weight("model.embed_tokens.weight"); }
  at::Tensor head_weight() const override { return weight("lm_head.weight"); }
  at::Tensor weight(const std::string& name) const override;
  uint64_t weight_bytes() const override;

 private:
  // Any number of rows by pieces of at most RowForward::kMostRows.
  TargetOutput forward_in_pieces(const TokenBatch& batch, const Taps& taps,
                                 const std::vector<PanelCache*>& caches) const;
  const RowForward& row_forward() const;
  const HeadRows& head_rows() const;
  std::vector<PanelCache*> checked(const TokenBatch& batch, const Taps& taps,
                                   const std::vector<KvCache*>& caches) const;

  ModelConfig config_;
  WeightMap weights_;
  ModelWeights model_;
  at::ScalarType dtype_;
  nn::RopeTable rope_;
  // Packed copies for decoding, made by the first call that needs them: training features never do.
  mutable std::mutex packing_;
  mutable std::unique_ptr<const RowForward> row_forward_;
  mutable std::unique_ptr<const HeadRows> head_rows_;
};

}  // namespace pacer::target
