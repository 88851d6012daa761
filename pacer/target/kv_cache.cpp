#include "pacer/target/kv_cache.h"

namespace pacer::target {

PanelCache::PanelCache(const ModelConfig& config, at::ScalarType dtype, int64_t capacity_hint) {
  layers_.reserve(static_cast<size_t>(config.layers));
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_.emplace_back(config.kv_heads, config.head_dim, dtype, capacity_hint);
  }
}

void PanelCache::crop(int64_t length) {
  if (length < 0 || length > length_) {
    throw Error(ErrorKind::bug,
                "KvCache::crop: to " + std::to_string(length) + " rows, but " + std::to_string(length_) + " are there");
  }
  length_ = length;
}

std::unique_ptr<KvCache> PanelCache::clone() const {
  auto copy = std::make_unique<PanelCache>(*this);
  for (nn::KeyValuePanels& layer : copy->layers_) layer = layer.clone();
  return copy;
}

uint64_t PanelCache::bytes() const {
  uint64_t sum = 0;
  for (const nn::KeyValuePanels& layer : layers_) sum += layer.bytes();
  return sum;
}

void PanelCache::reserve(int64_t rows) {
  for (nn::KeyValuePanels& layer : layers_) layer.reserve(rows);
}

}  // namespace pacer::target
