#include "pacer/draft/row_backbone.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/draft/plain_row_backbone.h"
#include "pacer/nn/key_value_panels.h"
#include "pacer/nn/leading_sums.h"
#include "pacer/nn/rope.h"
#include "pacer/nn/row_attention.h"
#include "pacer/nn/row_kernels.h"
#include "pacer/nn/row_linear.h"
#include "pacer/target/rope_frequencies.h"

namespace pacer::draft {
namespace {

template <typename T>
const T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}

template <typename T>
struct RowLayer {
  nn::RowLinear<T> q, kv, o, gate_up, down;
  at::Tensor input_norm, post_norm, q_norm, k_norm;  // [H], [H], [D], [D]
  at::Tensor q_bias, k_bias, v_bias, o_bias;
  nn::KeyValuePanels cache;
};

template <typename T>
class Rows final : public RowBackbone {
 public:
  Rows(const DraftConfig& config, const DraftWeights& weights, const at::Tensor& head, at::ScalarType dtype)
      : config_(config),
        sizes_(config_.layer),
        dtype_(dtype),
        kernels_(nn::row_kernels<T>()),
        rope_(target::rope_table(sizes_.rope, sizes_.head_dim, sizes_.max_position)),
        hidden_norm_(take(weights, "hidden_norm.weight")),
        norm_(take(weights, "norm.weight")),
        fc_({take(weights, "fc.weight")}, arena_) {
    layers_.reserve(static_cast<size_t>(config_.layers));
    for (int64_t i = 0; i < config_.layers; ++i) layers_.push_back(layer(weights, i));
    if (head.defined()) head_.emplace(std::vector<at::Tensor>{head.to(dtype_)}, arena_);
    if (config_.markov != MarkovKind::none) {
      markov_.emplace(take(weights, "markov_head.markov_w2.weight"), arena_);
    }
  }

  int64_t length() const override { return length_; }
  void clear() override { length_ = 0; }
  void append(const at::Tensor& tapped) override;
  at::Tensor block(const at::Tensor& embedded) override;

  at::Tensor logits(const at::Tensor& hidden) const override { return (*head_)(hidden); }
  void add_markov(const at::Tensor& logits, const at::Tensor& u) const override {
    markov_->add(data<T>(u), logits.mutable_data_ptr<float>());
  }
  std::optional<int64_t> add_markov_leading(const at::Tensor& logits, const at::Tensor& u) const override {
    return markov_->add_leading(data<T>(u), logits.mutable_data_ptr<float>());
  }
  void add_markov_rest(const at::Tensor& logits, const at::Tensor& u) const override {
    markov_->add_rest(data<T>(u), logits.mutable_data_ptr<float>());
  }

 private:
  at::Tensor take(const DraftWeights& weights, const std::string& name) const {
    return weights.at(name).detach().to(dtype_).contiguous();
  }

  RowLayer<T> layer(const DraftWeights& weights, int64_t index) {
    const std::string at = "layers." + std::to_string(index) + ".", attention = at + "self_attn.", mlp = at + "mlp.";
    const auto get = [&](const std::string& name) { return take(weights, name); };
    const auto bias = [&](bool there, const char* name) { return there ? get(attention + name) : at::Tensor(); };
    return {.q = nn::RowLinear<T>({get(attention + "q_proj.weight")}, arena_),
            .kv = nn::RowLinear<T>({get(attention + "k_proj.weight"), get(attention + "v_proj.weight")}, arena_),
            .o = nn::RowLinear<T>({get(attention + "o_proj.weight")}, arena_),
            .gate_up = nn::RowLinear<T>({get(mlp + "gate_proj.weight"), get(mlp + "up_proj.weight")}, arena_),
            .down = nn::RowLinear<T>({get(mlp + "down_proj.weight")}, arena_),
            .input_norm = get(at + "input_layernorm.weight"),
            .post_norm = get(at + "post_attention_layernorm.weight"),
            .q_norm = get(attention + "q_norm.weight"),
            .k_norm = get(attention + "k_norm.weight"),
            .q_bias = bias(sizes_.qkv_bias, "q_proj.bias"),
            .k_bias = bias(sizes_.qkv_bias, "k_proj.bias"),
            .v_bias = bias(sizes_.qkv_bias, "v_proj.bias"),
            .o_bias = bias(sizes_.o_bias, "o_proj.bias"),
            .cache = nn::KeyValuePanels(sizes_.kv_heads, sizes_.head_dim, dtype_, 256)};
  }

  void norm(const at::Tensor& weight, const T* x, T* y, int64_t rows) const {
    const int64_t width = weight.size(0);
    for (int64_t row = 0; row < rows; ++row) {
      kernels_.rms_norm(x + row * width, data<T>(weight), width, static_cast<float>(sizes_.rms_epsilon),
                        y + row * width);
    }
  }

  // Keys and values of rows [n, H] at positions first, first + 1, ... go into the cache there.
  void write_keys(RowLayer<T>& layer, const T* rows, int64_t count, int64_t first);
  void attend(RowLayer<T>& layer, int64_t index, const T* normed, int64_t count, T* mixed);

  const DraftConfig config_;
  const target::ModelConfig& sizes_;
  at::ScalarType dtype_;
  const nn::RowKernels<T>& kernels_;
  nn::RopeTable rope_;
  nn::PanelArena arena_;
  at::Tensor hidden_norm_, norm_;
  nn::RowLinear<T> fc_;
  std::vector<RowLayer<T>> layers_;
  std::optional<nn::RowLinear<T>> head_;
  std::optional<nn::LeadingSums<T>> markov_;
  int64_t length_ = 0;
};

template <typename T>
void Rows<T>::write_keys(RowLayer<T>& layer, const T* rows, int64_t count, int64_t first) {
  const int64_t dim = sizes_.head_dim, width = sizes_.kv_heads * dim;
  std::vector<float> sums(static_cast<size_t>(count * layer.kv.stride()));
  std::vector<float> cos(static_cast<size_t>(dim / 2)), sin(static_cast<size_t>(dim / 2));
  std::vector<T> k(static_cast<size_t>(width)), v(static_cast<size_t>(width));
  layer.kv.sums(rows, count, sums.data());
  layer.cache.reserve(first + count);
  for (int64_t row = 0; row < count; ++row) {
    const float* own = sums.data() + row * layer.kv.stride();
    kernels_.finish(own, data<T>(layer.k_bias), width, k.data());
    kernels_.finish(own + width, data<T>(layer.v_bias), width, v.data());
    rope_.row(first + row, cos.data(), sin.data());
    for (int64_t head = 0; head < sizes_.kv_heads; ++head) {
      T* one = k.data() + head * dim;
      kernels_.rms_norm(one, data<T>(layer.k_norm), dim, static_cast<float>(sizes_.rms_epsilon), one);
      kernels_.rotate(one, cos.data(), sin.data(), dim / 2);
    }
    layer.cache.write_row(first + row, k.data(), v.data());
  }
}

template <typename T>
void Rows<T>::attend(RowLayer<T>& layer, int64_t index, const T* normed, int64_t count, T* mixed) {
  const int64_t dim = sizes_.head_dim, width = sizes_.heads * dim;
  std::vector<float> sums(static_cast<size_t>(count * layer.q.stride()));
  std::vector<float> cos(static_cast<size_t>(dim / 2)), sin(static_cast<size_t>(dim / 2));
  std::vector<T> q(static_cast<size_t>(count * width));
  layer.q.sums(normed, count, sums.data());
  for (int64_t row = 0; row < count; ++row) {
    kernels_.finish(sums.data() + row * layer.q.stride(), data<T>(layer.q_bias), width, q.data() + row * width);
    rope_.row(length_ + row, cos.data(), sin.data());
    for (int64_t head = 0; head < sizes_.heads; ++head) {
      T* one = q.data() + row * width + head * dim;
      kernels_.rms_norm(one, data<T>(layer.q_norm), dim, static_cast<float>(sizes_.rms_epsilon), one);
      kernels_.rotate(one, cos.data(), sin.data(), dim / 2);
    }
  }
  bool windowed = false;
  int64_t reach = std::numeric_limits<int64_t>::max() / 2;
  if (!config_.sliding_window.empty()) {
    if (const auto& window = config_.sliding_window[static_cast<size_t>(index)]) windowed = true, reach = *window;
  }
  for (int64_t row = 0; row < count; ++row) {
    // The kernel is causal. A slot sees its whole block, so it is placed at the block's end; under a sliding window it
    // stands at its own place and sees the slots up to itself.
    const int64_t place = windowed ? length_ + row : length_ + count - 1;
    for (int64_t head = 0; head < sizes_.kv_heads; ++head) {
      nn::row_attention(q.data() + row * width, 1, sizes_.heads, layer.cache, head, place, reach, mixed + row * width,
                        kernels_);
    }
  }
}

template <typename T>
void Rows<T>::append(const at::Tensor& tapped) {
  const at::Tensor rows = tapped.to(dtype_).contiguous();
  const int64_t count = rows.size(0), width = sizes_.hidden_size;
  std::vector<float> sums(static_cast<size_t>(count * fc_.stride()));
  std::vector<T> projected(static_cast<size_t>(count * width)), context(projected.size());
  fc_.sums(data<T>(rows), count, sums.data());
  for (int64_t row = 0; row < count; ++row) {
    kernels_.finish(sums.data() + row * fc_.stride(), nullptr, width, projected.data() + row * width);
  }
  norm(hidden_norm_, projected.data(), context.data(), count);
  for (RowLayer<T>& layer : layers_) write_keys(layer, context.data(), count, length_);
  length_ += count;
}

template <typename T>
at::Tensor Rows<T>::block(const at::Tensor& embedded) {
  const int64_t count = embedded.size(0), width = sizes_.hidden_size, inner_width = sizes_.intermediate_size;
  const at::Tensor x = embedded.contiguous();
  std::vector<T> hidden(data<T>(x), data<T>(x) + count * width), normed(hidden.size());
  std::vector<T> mixed(static_cast<size_t>(count * sizes_.heads * sizes_.head_dim));
  std::vector<T> inner(static_cast<size_t>(count * inner_width));
  std::vector<float> sums;
  for (size_t index = 0; index < layers_.size(); ++index) {
    RowLayer<T>& layer = layers_[index];
    norm(layer.input_norm, hidden.data(), normed.data(), count);
    // Behind the context; the next append or block overwrites them.
    write_keys(layer, normed.data(), count, length_);
    attend(layer, static_cast<int64_t>(index), normed.data(), count, mixed.data());
    sums.resize(static_cast<size_t>(count * std::max({layer.o.stride(), layer.gate_up.stride(), layer.down.stride()})));
    layer.o.sums(mixed.data(), count, sums.data());
    for (int64_t row = 0; row < count; ++row) {
      kernels_.add(sums.data() + row * layer.o.stride(), data<T>(layer.o_bias), width, hidden.data() + row * width);
    }
    norm(layer.post_norm, hidden.data(), normed.data(), count);
    layer.gate_up.sums(normed.data(), count, sums.data());
    for (int64_t row = 0; row < count; ++row) {
      const float* own = sums.data() + row * layer.gate_up.stride();
      kernels_.gated(own, nullptr, own + inner_width, nullptr, inner_width, inner.data() + row * inner_width);
    }
    layer.down.sums(inner.data(), count, sums.data());
    for (int64_t row = 0; row < count; ++row) {
      kernels_.add(sums.data() + row * layer.down.stride(), nullptr, width, hidden.data() + row * width);
    }
  }
  const at::Tensor out = at::empty({count, width}, embedded.options());
  norm(norm_, hidden.data(), static_cast<T*>(out.mutable_data_ptr()), count);
  return out;
}

}  // namespace

std::unique_ptr<RowBackbone> RowBackbone::make(const DraftConfig& config, const DraftWeights& weights,
                                               const at::Tensor& head, at::ScalarType dtype, c10::Device device) {
  if (dtype != at::kBFloat16 && dtype != at::kFloat) {
    throw Error(ErrorKind::bug, std::string("a draft decodes in f32 or bf16, not in ") + c10::toString(dtype));
  }
  if (!device::own_kernels(device) || !device::own_attention(device)) {
    return make_plain_row_backbone(config, weights, head, dtype, device);
  }
  if (dtype == at::kBFloat16) return std::make_unique<Rows<uint16_t>>(config, weights, head, dtype);
  return std::make_unique<Rows<float>>(config, weights, head, dtype);
}

}  // namespace pacer::draft
