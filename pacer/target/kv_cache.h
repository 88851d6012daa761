// The cache of one sequence: one KeyValuePanels per layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pacer/nn/key_value_panels.h"
#include "pacer/target/target.h"

namespace pacer::target {

class PanelCache final : public KvCache {
 public:
  PanelCache(const ModelConfig& config, at::ScalarType dtype, int64_t capacity_hint);

  int64_t length() const override { return length_; }
  void crop(int64_t length) override;
  std::unique_ptr<KvCache> clone() const override;
  uint64_t bytes() const override;

  // A forward makes room, writes rows [length, length + n) in every layer, then counts them in.
  void reserve(int64_t rows);
  nn::KeyValuePanels& layer(int64_t index) { return layers_[static_cast<size_t>(index)]; }
  const nn::KeyValuePanels& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }
  int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
  void extend(int64_t rows) { length_ += rows; }

 private:
  std::vector<nn::KeyValuePanels> layers_;
  int64_t length_ = 0;
};

}  // namespace pacer::target
