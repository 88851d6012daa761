#include "pacer/draft/plain_row_backbone.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/draft/backbone.h"
#include "pacer/nn/plain.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::draft {
namespace {

DraftWeights on_device(const DraftWeights& weights, c10::Device device) {
  DraftWeights moved;
  for (const auto& [name, tensor] : weights) moved[name] = tensor.to(device);
  return moved;
}

class PlainRows final : public RowBackbone {
 public:
  PlainRows(const DraftConfig& config, const DraftWeights& weights, const at::Tensor& head, at::ScalarType dtype,
            c10::Device device)
      : device_(device),
        dtype_(dtype),
        backbone_(config, target::rope_table(config.layer.rope, config.layer.head_dim, config.layer.max_position)),
        weights_(arrange(config, on_device(weights, device), dtype)),
        keys_(weights_.layers.size()) {
    if (head.defined()) head_ = head.to(device, dtype);
    if (config.markov != MarkovKind::none) w2_ = weights.at("markov_head.markov_w2.weight").to(device, dtype);
  }

  int64_t length() const override { return length_; }
  void clear() override { length_ = 0; }

  void append(const at::Tensor& tapped) override {
    const at::Tensor rows = tapped.to(device_, dtype_);
    for (int64_t row = 0; row < rows.size(0);) {
      const int64_t count = std::min(kTile - length_ % kTile, rows.size(0) - row);
      append_tile(rows.slice(0, row, row + count));
      row += count;
    }
  }

  at::Tensor block(const at::Tensor& embedded) override {
    const int64_t slots = embedded.size(0);
    const nn::BlockLayout layout{{0, length_}, {0, 1}, {length_}, slots};
    const nn::RopeRows positions = turns(length_, length_ + slots);
    at::Tensor x = embedded.to(device_, dtype_);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const KeysValues seen{keys_[i].k.slice(0, 0, length_), keys_[i].v.slice(0, 0, length_)};
      x = backbone_.layer(weights_.layers[i], static_cast<int64_t>(i), x, seen, layout, positions);
    }
    return backbone_.final_norm(weights_, x);
  }

  at::Tensor logits(const at::Tensor& hidden) const override { return nn::plain::product_f32(hidden, head_); }
  void add_markov(const at::Tensor& logits, const at::Tensor& u) const override {
    logits.add_(nn::plain::product_f32(u, w2_).view_as(logits));
  }
  std::optional<int64_t> add_markov_leading(const at::Tensor& logits, const at::Tensor& u) const override {
    add_markov(logits, u);
    return std::nullopt;
  }
  void add_markov_rest(const at::Tensor&, const at::Tensor&) const override {}

 private:
  // A row always stands at the place of its position in products of the same shape.
  static constexpr int64_t kTile = 8;

  void append_tile(const at::Tensor& rows) {
    const int64_t begin = length_ / kTile * kTile, place = length_ - begin, end = length_ + rows.size(0);
    std::vector<int64_t> sizes = rows.sizes().vec();
    sizes[0] = kTile;
    at::Tensor tile = at::zeros(sizes, rows.options());
    tile.slice(0, place, end - begin).copy_(rows);
    const nn::RopeRows positions = turns(begin, begin + kTile);
    const at::Tensor context = backbone_.context(weights_, tile);
    for (size_t i = 0; i < keys_.size(); ++i) {
      const KeysValues made = backbone_.context_keys(weights_.layers[i], context, positions);
      keep(keys_[i].k, made.k.slice(0, place, end - begin), end);
      keep(keys_[i].v, made.v.slice(0, place, end - begin), end);
    }
    length_ = end;
  }

  nn::RopeRows turns(int64_t begin, int64_t end) const {
    const nn::RopeRows host = backbone_.rope().rows(at::arange(begin, end, at::kLong));
    return {host.cos.to(device_), host.sin.to(device_)};
  }

  // Rows [length_, end) of a tensor that grows by doubling.
  void keep(at::Tensor& kept, const at::Tensor& made, int64_t end) const {
    const int64_t capacity = kept.defined() ? kept.size(0) : 0;
    if (capacity < end) {
      std::vector<int64_t> sizes = made.sizes().vec();
      sizes[0] = std::max<int64_t>({end, 2 * capacity, 256});
      const at::Tensor larger = at::empty(sizes, made.options());
      if (length_ > 0) larger.slice(0, 0, length_).copy_(kept.slice(0, 0, length_));
      kept = larger;
    }
    kept.slice(0, length_, end).copy_(made);
  }

  c10::Device device_;
  at::ScalarType dtype_;
  Backbone backbone_;
  BackboneWeights weights_;
  at::Tensor head_, w2_;
  std::vector<KeysValues> keys_;  // per layer [capacity, kv_heads, D]
  int64_t length_ = 0;
};

}  // namespace

std::unique_ptr<RowBackbone> make_plain_row_backbone(const DraftConfig& config, const DraftWeights& weights,
                                                     const at::Tensor& head, at::ScalarType dtype, c10::Device device) {
  return std::make_unique<PlainRows>(config, weights, head, dtype, device);
}

}  // namespace pacer::draft
