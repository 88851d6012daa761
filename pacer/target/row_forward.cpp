#include "pacer/target/row_forward.h"

#include <algorithm>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "pacer/nn/row_attention.h"
#include "pacer/nn/row_kernels.h"
#include "pacer/nn/row_linear.h"

namespace pacer::target {
namespace {

template <typename T>
const T* data(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<const T*>(tensor.const_data_ptr()) : nullptr;
}

// Work on single rows is shared among threads only where there are many; each row is done by one thread.
template <typename Body>
void for_rows(int64_t rows, const Body& body) {
  at::parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row);
  });
}

template <typename T>
struct PackedLayer {
  nn::RowLinear<T> qkv, o, gate_up, down;
};

template <typename T>
class Rows final : public RowForward {
 public:
  Rows(const ModelConfig& config, const ModelWeights& model, const nn::RopeTable& rope)
      : config_(config), model_(model), rope_(rope), kernels_(nn::row_kernels<T>()) {
    nn::PanelArena arena;
    layers_.reserve(model.layers.size());
    for (const LayerWeights& layer : model.layers) {
      layers_.push_back({nn::RowLinear<T>({layer.q, layer.k, layer.v}, arena), nn::RowLinear<T>({layer.o}, arena),
                         nn::RowLinear<T>({layer.gate, layer.up}, arena), nn::RowLinear<T>({layer.down}, arena)});
    }
  }

  TargetOutput forward(const TokenBatch& batch, const Taps& taps,
                       const std::vector<PanelCache*>& caches) const override;

  uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const auto& layer : layers_) {
      sum += layer.qkv.bytes() + layer.o.bytes() + layer.gate_up.bytes() + layer.down.bytes();
    }
    return sum;
  }

 private:
  struct Buffers;
  void attention(size_t index, const TokenBatch& batch, const std::vector<PanelCache*>& caches, Buffers& b) const;
  void feed_forward(size_t index, Buffers& b) const;
  void norm(const at::Tensor& weight, const T* x, T* y, int64_t rows) const {
    const int64_t width = config_.hidden_size;
    for_rows(rows, [&](int64_t row) {
      kernels_.rms_norm(x + row * width, data<T>(weight), width, static_cast<float>(config_.rms_epsilon),
                        y + row * width);
    });
  }

  const ModelConfig& config_;
  const ModelWeights& model_;
  const nn::RopeTable& rope_;
  const nn::RowKernels<T>& kernels_;
  std::vector<PackedLayer<T>> layers_;
};

// Everything between the layers' products, for one call.
template <typename T>
struct Rows<T>::Buffers {
  int64_t rows;
  std::vector<T> hidden, normed, q, k, v, mixed, inner;
  std::vector<float> sums, cos, sin;

  Buffers(const ModelConfig& config, const PackedLayer<T>& layer, int64_t count) : rows(count) {
    const auto make = [&](auto& vector, int64_t width) { vector.resize(static_cast<size_t>(count * width)); };
    make(hidden, config.hidden_size), make(normed, config.hidden_size);
    make(q, config.heads * config.head_dim), make(mixed, config.heads * config.head_dim);
    make(k, config.kv_heads * config.head_dim), make(v, config.kv_heads * config.head_dim);
    make(inner, config.intermediate_size);
    make(sums, std::max({layer.qkv.stride(), layer.o.stride(), layer.gate_up.stride(), layer.down.stride()}));
    make(cos, config.head_dim / 2), make(sin, config.head_dim / 2);
  }
};

template <typename T>
void Rows<T>::attention(size_t index, const TokenBatch& batch, const std::vector<PanelCache*>& caches,
                        Buffers& b) const {
  const LayerWeights& layer = model_.layers[index];
  const PackedLayer<T>& packed = layers_[index];
  const int64_t dim = config_.head_dim, q_width = config_.heads * dim, k_width = config_.kv_heads * dim;
  const auto epsilon = static_cast<float>(config_.rms_epsilon);

  norm(layer.input_norm, b.hidden.data(), b.normed.data(), b.rows);
  packed.qkv.sums(b.normed.data(), b.rows, b.sums.data());
  for_rows(b.rows, [&](int64_t row) {
    const float* sums = b.sums.data() + row * packed.qkv.stride();
    T *q = b.q.data() + row * q_width, *k = b.k.data() + row * k_width;
    kernels_.finish(sums, data<T>(layer.q_bias), q_width, q);
    kernels_.finish(sums + q_width, data<T>(layer.k_bias), k_width, k);
    kernels_.finish(sums + q_width + k_width, data<T>(layer.v_bias), k_width, b.v.data() + row * k_width);
    const float *cos = b.cos.data() + row * dim / 2, *sin = b.sin.data() + row * dim / 2;
    const auto place = [&](T* head, const at::Tensor& weight) {
      if (weight.defined()) kernels_.rms_norm(head, data<T>(weight), dim, epsilon, head);
      kernels_.rotate(head, cos, sin, dim / 2);
    };
    for (int64_t head = 0; head < config_.heads; ++head) place(q + head * dim, layer.q_norm);
    for (int64_t head = 0; head < config_.kv_heads; ++head) place(k + head * dim, layer.k_norm);
  });

  const int64_t reach = config_.sliding_window.empty()
                            ? std::numeric_limits<int64_t>::max() / 2
                            : config_.sliding_window[index].value_or(std::numeric_limits<int64_t>::max() / 2);
  const auto layer_index = static_cast<int64_t>(index);
  at::parallel_for(0, batch.sequences(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto s = static_cast<size_t>(task);
      for (int64_t row = batch.starts[s]; row < batch.starts[s + 1]; ++row) {
        caches[s]
            ->layer(layer_index)
            .write_row(caches[s]->length() + row - batch.starts[s], b.k.data() + row * k_width,
                       b.v.data() + row * k_width);
      }
    }
  });
  at::parallel_for(0, batch.sequences() * config_.kv_heads, 4, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto s = static_cast<size_t>(task / config_.kv_heads);
      const int64_t row = batch.starts[s], rows = batch.starts[s + 1] - row;
      if (rows == 0) continue;
      nn::row_attention(b.q.data() + row * q_width, rows, config_.heads, caches[s]->layer(layer_index),
                        task % config_.kv_heads, caches[s]->length(), reach, b.mixed.data() + row * q_width, kernels_);
    }
  });
  packed.o.sums(b.mixed.data(), b.rows, b.sums.data());
  for_rows(b.rows, [&](int64_t row) {
    kernels_.add(b.sums.data() + row * packed.o.stride(), data<T>(layer.o_bias), config_.hidden_size,
                 b.hidden.data() + row * config_.hidden_size);
  });
}

template <typename T>
void Rows<T>::feed_forward(size_t index, Buffers& b) const {
  const LayerWeights& layer = model_.layers[index];
  const PackedLayer<T>& packed = layers_[index];
  const int64_t width = config_.intermediate_size;
  norm(layer.post_norm, b.hidden.data(), b.normed.data(), b.rows);
  packed.gate_up.sums(b.normed.data(), b.rows, b.sums.data());
  for_rows(b.rows, [&](int64_t row) {
    const float* sums = b.sums.data() + row * packed.gate_up.stride();
    kernels_.gated(sums, data<T>(layer.gate_bias), sums + width, data<T>(layer.up_bias), width,
                   b.inner.data() + row * width);
  });
  packed.down.sums(b.inner.data(), b.rows, b.sums.data());
  for_rows(b.rows, [&](int64_t row) {
    kernels_.add(b.sums.data() + row * packed.down.stride(), data<T>(layer.down_bias), config_.hidden_size,
                 b.hidden.data() + row * config_.hidden_size);
  });
}

template <typename T>
TargetOutput Rows<T>::forward(const TokenBatch& batch, const Taps& taps, const std::vector<PanelCache*>& caches) const {
  const int64_t rows = batch.rows(), width = config_.hidden_size, half = config_.head_dim / 2;
  Buffers b(config_, layers_.front(), rows);
  const at::Tensor ids = batch.ids.contiguous(), positions = batch.positions.contiguous();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t id = ids.const_data_ptr<int64_t>()[row];
    std::copy_n(data<T>(model_.embedding) + id * width, width, b.hidden.data() + row * width);
    rope_.row(positions.const_data_ptr<int64_t>()[row], b.cos.data() + row * half, b.sin.data() + row * half);
  }
  for (size_t s = 0; s < caches.size(); ++s) {
    caches[s]->reserve(caches[s]->length() + batch.starts[s + 1] - batch.starts[s]);
  }

  TargetOutput output;
  const at::TensorOptions options = model_.embedding.options();
  const auto count = static_cast<int64_t>(taps.size());
  if (count > 0) output.tapped = at::empty({rows, count, width}, options);
  const auto tap = [&](int64_t id) {
    for (int64_t i = 0; i < count; ++i) {
      if (taps[static_cast<size_t>(i)] != id) continue;
      T* to = static_cast<T*>(output.tapped.mutable_data_ptr()) + i * width;
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(b.hidden.data() + row * width, width, to + row * count * width);
      }
    }
  };
  tap(-1);
  for (size_t index = 0; index < layers_.size(); ++index) {
    attention(index, batch, caches, b);
    feed_forward(index, b);
    tap(static_cast<int64_t>(index));
  }
  output.last = at::empty({rows, width}, options);
  norm(model_.final_norm, b.hidden.data(), static_cast<T*>(output.last.mutable_data_ptr()), rows);
  for (size_t s = 0; s < caches.size(); ++s) caches[s]->extend(batch.starts[s + 1] - batch.starts[s]);
  return output;
}

template <typename T>
class PackedHead final : public HeadRows {
 public:
  explicit PackedHead(const at::Tensor& head) : linear_({head}, arena_) {}
  at::Tensor logits(const at::Tensor& last) const override { return linear_(last); }
  uint64_t bytes() const override { return linear_.bytes(); }

 private:
  nn::PanelArena arena_;
  nn::RowLinear<T> linear_;
};

}  // namespace

std::unique_ptr<const HeadRows> HeadRows::make(const at::Tensor& head) {
  if (head.scalar_type() == at::kBFloat16) return std::make_unique<PackedHead<uint16_t>>(head);
  return std::make_unique<PackedHead<float>>(head);
}

std::unique_ptr<const RowForward> RowForward::make(const ModelConfig& config, const ModelWeights& model,
                                                   const nn::RopeTable& rope, at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return std::make_unique<Rows<uint16_t>>(config, model, rope);
  return std::make_unique<Rows<float>>(config, model, rope);
}

}  // namespace pacer::target
