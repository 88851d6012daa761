#include "pacer/target/row_forward.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "pacer/base/error.h"
#include "pacer/nn/bfloat16.h"
#include "pacer/nn/row_attention.h"
#include "pacer/nn/row_kernels.h"
#include "pacer/nn/row_layer.h"
#include "pacer/nn/row_memory.h"

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

void narrow_all(const float* from, int64_t count, uint16_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] = nn::narrow<uint16_t>(from[i]);
}

template <typename T>
struct PackedLayer {
  nn::RowLayer<T> qkv, o, gate_up, down;
};

template <typename T>
class Rows final : public RowForward {
 public:
  Rows(const ModelConfig& config, const ModelWeights& model, const nn::RopeTable& rope)
      : config_(config), model_(model), rope_(rope), kernels_(nn::row_kernels<T>()) {
    nn::PanelArena arena;
    layers_.reserve(model.layers.size());
    for (size_t i = 0; i < model.layers.size(); ++i) {
      const LayerWeights& layer = model.layers[i];
      const auto matrix = [&](const at::Tensor& dense, const char* name) -> nn::RowMatrix {
        if (!model.stored) return dense;
        return model.stored->matrix(layer_name(static_cast<int64_t>(i), std::string(name) + ".weight"));
      };
      layers_.push_back({nn::RowLayer<T>({matrix(layer.q, "self_attn.q_proj"), matrix(layer.k, "self_attn.k_proj"),
                                          matrix(layer.v, "self_attn.v_proj")},
                                         arena),
                         nn::RowLayer<T>({matrix(layer.o, "self_attn.o_proj")}, arena),
                         nn::RowLayer<T>({matrix(layer.gate, "mlp.gate_proj"), matrix(layer.up, "mlp.up_proj")}, arena),
                         nn::RowLayer<T>({matrix(layer.down, "mlp.down_proj")}, arena)});
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
  // Keys and values of the new rows into the caches, then attention over them; C: what the caches hold.
  template <typename C>
  void attend(size_t index, const TokenBatch& batch, const std::vector<PanelCache*>& caches, const C* q, const C* k,
              const C* v, C* mixed) const;
  void feed_forward(size_t index, Buffers& b) const;
  void embed(int64_t id, T* row) const {
    if constexpr (std::is_same_v<T, float>) {
      if (model_.stored) return model_.stored->embedding_row(id, row);
    }
    std::copy_n(data<T>(model_.embedding) + id * config_.hidden_size, config_.hidden_size, row);
  }
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

// Everything between the layers' products, for one call. The memory belongs to the thread, grows and stays: fresh
// memory for every token costs page faults.
template <typename T>
struct Rows<T>::Buffers {
  int64_t rows;
  T *hidden, *normed, *q, *k, *v, *mixed, *inner;
  float *sums, *cos, *sin;
  uint16_t *narrow_q, *narrow_k, *narrow_v, *narrow_mixed;  // f32 rows beside a bf16 cache

  Buffers(const ModelConfig& config, const PackedLayer<T>& layer, int64_t count) : rows(count) {
    const int64_t hidden_width = config.hidden_size, half = config.head_dim / 2;
    const int64_t queries = config.heads * config.head_dim, keys = config.kv_heads * config.head_dim;
    static thread_local std::vector<T> values;
    lay_out(values, {{&hidden, hidden_width},
                     {&normed, hidden_width},
                     {&q, queries},
                     {&mixed, queries},
                     {&k, keys},
                     {&v, keys},
                     {&inner, config.intermediate_size}});
    static thread_local std::vector<float> floats;
    const int64_t widest =
        std::max({layer.qkv.stride(), layer.o.stride(), layer.gate_up.stride(), layer.down.stride()});
    lay_out(floats, {{&sums, widest}, {&cos, half}, {&sin, half}});
    static thread_local std::vector<uint16_t> narrow;
    lay_out(narrow, {{&narrow_q, queries}, {&narrow_mixed, queries}, {&narrow_k, keys}, {&narrow_v, keys}});
  }

  // Pieces of `width` values a row, one after the other.
  template <typename U>
  void lay_out(std::vector<U>& memory, std::initializer_list<std::pair<U**, int64_t>> pieces) const {
    constexpr int64_t kLine = 64 / sizeof(U);
    int64_t total = 0;
    for (const auto& [piece, width] : pieces) total += (rows * width + kLine - 1) / kLine * kLine;
    if (memory.size() < static_cast<size_t>(total)) memory.resize(static_cast<size_t>(total));
    U* at = memory.data();
    for (const auto& [piece, width] : pieces) {
      *piece = at;
      at += (rows * width + kLine - 1) / kLine * kLine;
    }
  }
};

template <typename T>
template <typename C>
void Rows<T>::attend(size_t index, const TokenBatch& batch, const std::vector<PanelCache*>& caches, const C* q,
                     const C* k, const C* v, C* mixed) const {
  const int64_t q_width = config_.heads * config_.head_dim, k_width = config_.kv_heads * config_.head_dim;
  const auto layer_index = static_cast<int64_t>(index);
  const int64_t reach = config_.sliding_window.empty()
                            ? std::numeric_limits<int64_t>::max() / 2
                            : config_.sliding_window[index].value_or(std::numeric_limits<int64_t>::max() / 2);
  at::parallel_for(0, batch.sequences(), 8, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto s = static_cast<size_t>(task);
      for (int64_t row = batch.starts[s]; row < batch.starts[s + 1]; ++row) {
        caches[s]
            ->layer(layer_index)
            .write_row(caches[s]->length() + row - batch.starts[s], k + row * k_width, v + row * k_width);
      }
    }
  });
  at::parallel_for(0, batch.sequences() * config_.kv_heads, 4, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) {
      const auto s = static_cast<size_t>(task / config_.kv_heads);
      const int64_t row = batch.starts[s], rows = batch.starts[s + 1] - row;
      if (rows == 0) continue;
      nn::row_attention(q + row * q_width, rows, config_.heads, caches[s]->layer(layer_index), task % config_.kv_heads,
                        caches[s]->length(), reach, mixed + row * q_width, nn::row_kernels<C>());
    }
  });
}

template <typename T>
void Rows<T>::attention(size_t index, const TokenBatch& batch, const std::vector<PanelCache*>& caches,
                        Buffers& b) const {
  const LayerWeights& layer = model_.layers[index];
  const PackedLayer<T>& packed = layers_[index];
  const int64_t dim = config_.head_dim, q_width = config_.heads * dim, k_width = config_.kv_heads * dim;
  const auto epsilon = static_cast<float>(config_.rms_epsilon);

  const auto layer_index = static_cast<int64_t>(index);
  for (size_t s = 0; s < caches.size(); ++s) {
    if (batch.starts[s + 1] > batch.starts[s]) caches[s]->layer(layer_index).prefetch(caches[s]->length());
  }
  norm(layer.input_norm, b.hidden, b.normed, b.rows);
  packed.qkv.sums(b.normed, b.rows, b.sums);
  for_rows(b.rows, [&](int64_t row) {
    const float* sums = b.sums + row * packed.qkv.stride();
    T *q = b.q + row * q_width, *k = b.k + row * k_width;
    kernels_.finish(sums, data<T>(layer.q_bias), q_width, q);
    kernels_.finish(sums + q_width, data<T>(layer.k_bias), k_width, k);
    kernels_.finish(sums + q_width + k_width, data<T>(layer.v_bias), k_width, b.v + row * k_width);
    const float *cos = b.cos + row * dim / 2, *sin = b.sin + row * dim / 2;
    const auto place = [&](T* head, const at::Tensor& weight) {
      if (weight.defined()) kernels_.rms_norm(head, data<T>(weight), dim, epsilon, head);
      kernels_.rotate(head, cos, sin, dim / 2);
    };
    for (int64_t head = 0; head < config_.heads; ++head) place(q + head * dim, layer.q_norm);
    for (int64_t head = 0; head < config_.kv_heads; ++head) place(k + head * dim, layer.k_norm);
  });

  if constexpr (std::is_same_v<T, float>) {
    if (model_.stored) {
      narrow_all(b.q, b.rows * q_width, b.narrow_q), narrow_all(b.k, b.rows * k_width, b.narrow_k);
      narrow_all(b.v, b.rows * k_width, b.narrow_v);
      attend(index, batch, caches, b.narrow_q, b.narrow_k, b.narrow_v, b.narrow_mixed);
      for (int64_t i = 0; i < b.rows * q_width; ++i) b.mixed[i] = nn::widen(b.narrow_mixed[i]);
    } else {
      attend(index, batch, caches, b.q, b.k, b.v, b.mixed);
    }
  } else {
    attend(index, batch, caches, b.q, b.k, b.v, b.mixed);
  }
  packed.o.sums(b.mixed, b.rows, b.sums);
  for_rows(b.rows, [&](int64_t row) {
    kernels_.add(b.sums + row * packed.o.stride(), data<T>(layer.o_bias), config_.hidden_size,
                 b.hidden + row * config_.hidden_size);
  });
}

template <typename T>
void Rows<T>::feed_forward(size_t index, Buffers& b) const {
  const LayerWeights& layer = model_.layers[index];
  const PackedLayer<T>& packed = layers_[index];
  const int64_t width = config_.intermediate_size;
  norm(layer.post_norm, b.hidden, b.normed, b.rows);
  packed.gate_up.sums(b.normed, b.rows, b.sums);
  for_rows(b.rows, [&](int64_t row) {
    const float* sums = b.sums + row * packed.gate_up.stride();
    kernels_.gated(sums, data<T>(layer.gate_bias), sums + width, data<T>(layer.up_bias), width, b.inner + row * width);
  });
  packed.down.sums(b.inner, b.rows, b.sums);
  for_rows(b.rows, [&](int64_t row) {
    kernels_.add(b.sums + row * packed.down.stride(), data<T>(layer.down_bias), config_.hidden_size,
                 b.hidden + row * config_.hidden_size);
  });
}

template <typename T>
TargetOutput Rows<T>::forward(const TokenBatch& batch, const Taps& taps, const std::vector<PanelCache*>& caches) const {
  const int64_t rows = batch.rows(), width = config_.hidden_size, half = config_.head_dim / 2;
  Buffers b(config_, layers_.front(), rows);
  const at::Tensor ids = batch.ids.contiguous(), positions = batch.positions.contiguous();
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t id = ids.const_data_ptr<int64_t>()[row];
    embed(id, b.hidden + row * width);
    rope_.row(positions.const_data_ptr<int64_t>()[row], b.cos + row * half, b.sin + row * half);
  }
  for (size_t s = 0; s < caches.size(); ++s) {
    caches[s]->reserve(caches[s]->length() + batch.starts[s + 1] - batch.starts[s]);
  }

  TargetOutput output;
  const auto options = at::TensorOptions().dtype(sizeof(T) == 2 ? at::kBFloat16 : at::kFloat);
  const auto count = static_cast<int64_t>(taps.size());
  if (count > 0) output.tapped = at::empty({rows, count, width}, options);
  const auto tap = [&](int64_t id) {
    for (int64_t i = 0; i < count; ++i) {
      if (taps[static_cast<size_t>(i)] != id) continue;
      T* to = static_cast<T*>(output.tapped.mutable_data_ptr()) + i * width;
      for (int64_t row = 0; row < rows; ++row) {
        std::copy_n(b.hidden + row * width, width, to + row * count * width);
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
  norm(model_.final_norm, b.hidden, static_cast<T*>(output.last.mutable_data_ptr()), rows);
  for (size_t s = 0; s < caches.size(); ++s) caches[s]->extend(batch.starts[s + 1] - batch.starts[s]);
  return output;
}

template <typename T>
class PackedHead final : public HeadRows {
 public:
  explicit PackedHead(const nn::RowMatrix& head) : layer_({head}, arena_) {}
  at::Tensor logits(const at::Tensor& last) const override {
    const auto dtype = sizeof(T) == 2 ? at::kBFloat16 : at::kFloat;
    if (last.dim() != 2 || last.size(1) != layer_.inputs() || last.scalar_type() != dtype) {
      throw Error(ErrorKind::bug, "logits of rows " + c10::str(last.sizes()) + " in " + toString(last.scalar_type()) +
                                      "; expected [n, " + std::to_string(layer_.inputs()) + "] in " + toString(dtype));
    }
    const at::Tensor rows = last.contiguous();
    const at::Tensor sums = memory_->take(rows.size(0), layer_.stride());
    layer_.sums(data<T>(rows), rows.size(0), sums.mutable_data_ptr<float>());
    return sums.narrow(1, 0, layer_.outputs()).contiguous();
  }
  uint64_t bytes() const override { return layer_.bytes(); }

 private:
  nn::PanelArena arena_;
  nn::RowLayer<T> layer_;
  std::shared_ptr<nn::RowMemory> memory_ = std::make_shared<nn::RowMemory>();
};

}  // namespace

std::unique_ptr<const HeadRows> HeadRows::make(const ModelConfig& config, const ModelWeights& model,
                                               at::ScalarType dtype) {
  nn::RowMatrix head = model.head;
  if (model.stored) {
    head = model.stored->matrix(config.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  }
  if (dtype == at::kBFloat16) return std::make_unique<PackedHead<uint16_t>>(head);
  return std::make_unique<PackedHead<float>>(head);
}

at::ScalarType RowForward::cache_dtype(const ModelWeights& model, at::ScalarType dtype) {
  return model.stored ? at::kBFloat16 : dtype;
}

std::unique_ptr<const RowForward> RowForward::make(const ModelConfig& config, const ModelWeights& model,
                                                   const nn::RopeTable& rope, at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return std::make_unique<Rows<uint16_t>>(config, model, rope);
  return std::make_unique<Rows<float>>(config, model, rope);
}

}  // namespace pacer::target
