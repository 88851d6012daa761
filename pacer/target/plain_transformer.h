// The target composed of LibTorch's operators: for devices whose memory the host cannot read, and as the reference that
// the kernels are compared with.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pacer/nn/rope.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"

namespace pacer::target {

// Keys and values of one sequence: per layer [kv_heads, capacity, D], zeros where nothing was written.
class PlainCache final : public KvCache {
 public:
  PlainCache(const ModelConfig& config, const at::TensorOptions& options, int64_t capacity_hint);

  int64_t length() const override { return length_; }
  void crop(int64_t length) override;
  std::unique_ptr<KvCache> clone() const override;
  uint64_t bytes() const override;

  struct Layer {
    at::Tensor keys, values;
  };
  void reserve(int64_t rows);
  Layer& layer(size_t index) { return layers_[index]; }
  size_t layers() const { return layers_.size(); }
  void set_length(int64_t length) { length_ = length; }

 private:
  std::vector<Layer> layers_;
  int64_t length_ = 0;
};

// The decoding promise on any device: rows of a sequence are computed in tiles of kTileRows positions that begin at a
// multiple of it, always whole, empty places filled with a token whose result nobody reads. A row then stands at the
// same place of products of the same shape whatever else is computed, so its bits can depend on nothing but itself.
// One product per tile and layer reads all weights: a batch of many sequences is slow where weights are far away.
class PlainTransformer final : public Target {
 public:
  static constexpr int64_t kTileRows = 8;

  // Weights in `dtype`, on `device`. Throws Error{format} when one is missing.
  PlainTransformer(ModelConfig config, WeightMap weights, at::ScalarType dtype, c10::Device device);

  const ModelConfig& config() const override { return config_; }
  c10::Device device() const override { return device_; }
  at::ScalarType dtype() const override { return dtype_; }
  std::unique_ptr<KvCache> new_cache(int64_t capacity_hint) const override;
  TargetOutput forward(const TokenBatch& batch, const Taps& taps, const std::vector<KvCache*>& caches) const override;
  at::Tensor logits(const at::Tensor& last) const override;
  at::Tensor embed(const at::Tensor& ids) const override;
  at::Tensor embedding_weight() const override { return model_.embedding; }
  at::Tensor head_weight() const override { return model_.head; }
  at::Tensor weight(const std::string& name) const override;
  uint64_t weight_bytes() const override;

 private:
  struct Tile;
  void tile(const Tile& tile, const Taps& taps, PlainCache& cache, TargetOutput& output) const;
  at::Tensor attend(const Tile& tile, size_t layer, const at::Tensor& q, PlainCache& cache) const;

  ModelConfig config_;
  WeightMap weights_;
  ModelWeights model_;
  at::ScalarType dtype_;
  c10::Device device_;
  nn::RopeTable rope_;
};

}  // namespace pacer::target
