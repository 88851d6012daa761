#include "pacer/target/plain_transformer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "pacer/base/error.h"
#include "pacer/device/indices.h"
#include "pacer/nn/linear.h"
#include "pacer/nn/plain.h"
#include "pacer/nn/rms_norm.h"
#include "pacer/target/batch_checks.h"
#include "pacer/target/long_forward.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::target {
namespace {

constexpr int64_t kTile = PlainTransformer::kTileRows;
constexpr int64_t kBlock = 64;  // a cache grows by multiples of it

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

WeightMap on_device(WeightMap weights, c10::Device device) {
  for (auto& [name, tensor] : weights) tensor = tensor.to(device);
  return weights;
}

}  // namespace

PlainCache::PlainCache(const ModelConfig& config, const at::TensorOptions& options, int64_t capacity_hint) {
  const int64_t capacity = round_up(std::max(capacity_hint, kBlock), kBlock);
  for (int64_t i = 0; i < config.layers; ++i) {
    layers_.push_back({at::zeros({config.kv_heads, capacity, config.head_dim}, options),
                       at::zeros({config.kv_heads, capacity, config.head_dim}, options)});
  }
}

void PlainCache::crop(int64_t length) {
  if (length < 0 || length > length_) {
    throw Error(ErrorKind::bug,
                "KvCache::crop: to " + std::to_string(length) + " rows, but " + std::to_string(length_) + " are there");
  }
  length_ = length;
}

std::unique_ptr<KvCache> PlainCache::clone() const {
  auto copy = std::make_unique<PlainCache>(*this);
  for (Layer& layer : copy->layers_) layer = {layer.keys.clone(), layer.values.clone()};
  return copy;
}

uint64_t PlainCache::bytes() const {
  uint64_t sum = 0;
  for (const Layer& layer : layers_) sum += layer.keys.nbytes() + layer.values.nbytes();
  return sum;
}

void PlainCache::reserve(int64_t rows) {
  const int64_t now = layers_.front().keys.size(1);
  if (rows <= now) return;
  const int64_t capacity = round_up(std::max(rows, 2 * now), kBlock);
  for (Layer& layer : layers_) {
    for (at::Tensor* part : {&layer.keys, &layer.values}) {
      at::Tensor larger = at::zeros({part->size(0), capacity, part->size(2)}, part->options());
      larger.slice(1, 0, now).copy_(*part);
      *part = larger;
    }
  }
}

PlainTransformer::PlainTransformer(ModelConfig config, WeightMap weights, at::ScalarType dtype, c10::Device device)
    : config_(std::move(config)),
      weights_(on_device(std::move(weights), device)),
      model_(arrange(config_, weights_)),
      dtype_(dtype),
      device_(device),
      rope_(rope_table(config_.rope, config_.head_dim, config_.max_position)) {}

std::unique_ptr<KvCache> PlainTransformer::new_cache(int64_t capacity_hint) const {
  return std::make_unique<PlainCache>(config_, at::TensorOptions().dtype(dtype_).device(device_),
                                      capacity_hint + kTile);
}

// Positions [begin, begin + kTile), of which [first, last) are rows of the batch from `row` on.
struct PlainTransformer::Tile {
  int64_t begin, first, last, row;
  at::Tensor ids;      // [kTile] on the device
  nn::RopeRows turns;  // of all places
  int64_t count() const { return last - first; }
  at::Tensor rows(const at::Tensor& all) const { return all.slice(0, first - begin, last - begin); }
};

// [kTile, heads, D] over everything up to the end of the tile; what is not there yet is hidden by causality.
at::Tensor PlainTransformer::attend(const Tile& tile, size_t index, const at::Tensor& q, PlainCache& cache) const {
  const int64_t heads = config_.heads, kv_heads = config_.kv_heads, group = heads / kv_heads, dim = config_.head_dim;
  const int64_t keys = tile.begin + kTile;
  const int64_t all = std::numeric_limits<int64_t>::max() / 2;
  const int64_t reach = config_.sliding_window.empty() ? all : config_.sliding_window[index].value_or(all);
  const PlainCache::Layer& layer = cache.layer(index);
  const auto options = at::TensorOptions().dtype(at::kLong).device(device_);
  const at::Tensor position = at::arange(tile.begin, keys, options).unsqueeze(1);
  const at::Tensor key = at::arange(keys, options).unsqueeze(0);
  at::Tensor hidden = key > position;  // [kTile, keys]
  if (reach < all) hidden = hidden.logical_or(key <= position - reach);
  const at::Tensor by_head = q.view({kTile, kv_heads, group, dim}).permute({1, 0, 2, 3}).reshape({kv_heads, -1, dim});
  const at::Tensor scores =
      (at::bmm(by_head, layer.keys.slice(1, 0, keys).transpose(1, 2)) * (1.0 / std::sqrt(static_cast<double>(dim))))
          .to(at::kFloat);
  const at::Tensor seen = scores.view({kv_heads, kTile, group, keys})
                              .masked_fill(hidden.unsqueeze(1).unsqueeze(0), -std::numeric_limits<double>::infinity());
  const at::Tensor weights = at::softmax(seen, -1).view({kv_heads, kTile * group, keys}).to(dtype_);
  const at::Tensor mixed = at::bmm(weights, layer.values.slice(1, 0, keys));
  return mixed.view({kv_heads, kTile, group, dim}).permute({1, 0, 2, 3}).reshape({kTile, heads * dim});
}

void PlainTransformer::tile(const Tile& tile, const Taps& taps, PlainCache& cache, TargetOutput& output) const {
  const auto tap = [&](int64_t id, const at::Tensor& hidden) {
    for (size_t i = 0; i < taps.size(); ++i) {
      if (taps[i] != id) continue;
      output.tapped.select(1, static_cast<int64_t>(i))
          .slice(0, tile.row, tile.row + tile.count())
          .copy_(tile.rows(hidden));
    }
  };
  const auto heads_of = [&](const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, int64_t heads) {
    return nn::linear(x, weight, bias).view({kTile, heads, config_.head_dim});
  };
  at::Tensor hidden = model_.embedding.index_select(0, tile.ids);
  tap(-1, hidden);
  for (size_t index = 0; index < model_.layers.size(); ++index) {
    const LayerWeights& layer = model_.layers[index];
    at::Tensor normed = nn::rms_norm(hidden, layer.input_norm, config_.rms_epsilon);
    at::Tensor q = heads_of(normed, layer.q, layer.q_bias, config_.heads);
    at::Tensor k = heads_of(normed, layer.k, layer.k_bias, config_.kv_heads);
    const at::Tensor v = heads_of(normed, layer.v, layer.v_bias, config_.kv_heads);
    if (config_.qk_norm) {
      q = nn::rms_norm(q, layer.q_norm, config_.rms_epsilon);
      k = nn::rms_norm(k, layer.k_norm, config_.rms_epsilon);
    }
    q = nn::apply_rope(q, tile.turns);
    k = nn::apply_rope(k, tile.turns);
    PlainCache::Layer& kept = cache.layer(index);
    kept.keys.slice(1, tile.first, tile.last).copy_(tile.rows(k).transpose(0, 1));
    kept.values.slice(1, tile.first, tile.last).copy_(tile.rows(v).transpose(0, 1));
    hidden = hidden + nn::linear(attend(tile, index, q, cache), layer.o, layer.o_bias);
    normed = nn::rms_norm(hidden, layer.post_norm, config_.rms_epsilon);
    const at::Tensor gate = at::silu(nn::linear(normed, layer.gate, layer.gate_bias));
    hidden = hidden + nn::linear(gate * nn::linear(normed, layer.up, layer.up_bias), layer.down, layer.down_bias);
    tap(static_cast<int64_t>(index), hidden);
  }
  output.last.slice(0, tile.row, tile.row + tile.count())
      .copy_(tile.rows(nn::rms_norm(hidden, model_.final_norm, config_.rms_epsilon)));
}

TargetOutput PlainTransformer::forward(const TokenBatch& batch, const Taps& taps,
                                       const std::vector<KvCache*>& caches) const {
  check_batch(config_, batch, taps, caches);
  const at::NoGradGuard no_grad;
  const auto options = at::TensorOptions().dtype(dtype_).device(device_);
  TargetOutput output;
  if (caches.empty() && batch.rows() > 0) return long_forward(config_, model_, rope_, batch, taps, {});
  output.last = at::empty({batch.rows(), config_.hidden_size}, options);
  if (!taps.empty()) {
    output.tapped = at::empty({batch.rows(), static_cast<int64_t>(taps.size()), config_.hidden_size}, options);
  }
  const at::Tensor ids = batch.ids.contiguous();
  for (size_t s = 0; s < caches.size(); ++s) {
    auto* cache = dynamic_cast<PlainCache*>(caches[s]);
    if (cache == nullptr || cache->layers() != model_.layers.size() ||
        cache->layer(0).keys.options().device() != device_ || cache->layer(0).keys.scalar_type() != dtype_ ||
        cache->layer(0).keys.size(0) != config_.kv_heads || cache->layer(0).keys.size(2) != config_.head_dim) {
      throw Error(ErrorKind::bug, "Target::forward: a cache of another model");
    }
    const int64_t length = cache->length(), end = length + batch.starts[s + 1] - batch.starts[s];
    cache->reserve(round_up(end, kTile));
    for (int64_t begin = length / kTile * kTile; begin < end; begin += kTile) {
      Tile part{begin, std::max(begin, length), std::min(begin + kTile, end), 0, {}, {}};
      part.row = batch.starts[s] + part.first - length;
      std::vector<int64_t> tokens(kTile, 0);
      const int64_t* from = ids.const_data_ptr<int64_t>() + part.row;
      std::copy(from, from + part.count(), tokens.begin() + (part.first - begin));
      part.ids = device::as_indices(at::tensor(tokens, at::kLong), device_);
      const nn::RopeRows turns = rope_.rows(at::arange(begin, begin + kTile, at::kLong));
      part.turns = {turns.cos.to(device_), turns.sin.to(device_)};
      tile(part, taps, *cache, output);
    }
    cache->set_length(end);
  }
  return output;
}

// Rows stand at changing places here, but always in a product of kTile rows.
at::Tensor PlainTransformer::logits(const at::Tensor& last) const {
  if (last.dim() != 2 || last.size(1) != config_.hidden_size || last.scalar_type() != dtype_) {
    throw Error(ErrorKind::bug, "logits of rows " + c10::str(last.sizes()) + " in " + toString(last.scalar_type()) +
                                    "; expected [n, " + std::to_string(config_.hidden_size) + "] in " +
                                    toString(dtype_));
  }
  const at::NoGradGuard no_grad;
  at::Tensor out = at::empty({last.size(0), config_.vocab_size}, last.options().dtype(at::kFloat));
  for (int64_t begin = 0; begin < last.size(0); begin += kTile) {
    const int64_t count = std::min(kTile, last.size(0) - begin);
    at::Tensor rows = at::zeros({kTile, last.size(1)}, last.options());
    rows.slice(0, 0, count).copy_(last.slice(0, begin, begin + count));
    out.slice(0, begin, begin + count).copy_(nn::plain::product_f32(rows, model_.head).slice(0, 0, count));
  }
  return out;
}

at::Tensor PlainTransformer::embed(const at::Tensor& ids) const {
  return model_.embedding.index_select(0, device::as_indices(ids, device_));
}

at::Tensor PlainTransformer::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found != weights_.end()) return found->second;
  if (config_.tied_embeddings && name == "lm_head.weight") return model_.head;
  throw Error(ErrorKind::format, "the target has no weight " + name);
}

uint64_t PlainTransformer::weight_bytes() const {
  uint64_t sum = 0;
  for (const auto& [name, tensor] : weights_) sum += tensor.nbytes();
  return sum;
}

}  // namespace pacer::target
