#include "pacer/nn/key_value_panels.h"

#include <algorithm>
#include <cstring>

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/nn/row_kernels.h"

namespace pacer::nn {
namespace {

constexpr int64_t kBlock = 64;  // rows; a multiple of every set's lanes

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

KeyValuePanels::KeyValuePanels(int64_t kv_heads, int64_t head_dim, at::ScalarType dtype, int64_t capacity,
                               int64_t lanes)
    : kv_heads_(kv_heads),
      head_dim_(head_dim),
      padded_dim_(round_up(head_dim, 16)),
      dtype_(dtype),
      pair_(dtype == at::kBFloat16 ? 2 : 1),
      lanes_(lanes > 0                ? lanes
             : dtype == at::kBFloat16 ? row_kernels<uint16_t>().lanes
                                      : row_kernels<float>().lanes) {
  if (kv_heads < 1 || head_dim < 2 || head_dim % 2 != 0 || (dtype != at::kFloat && dtype != at::kBFloat16)) {
    throw Error(ErrorKind::bug, "KeyValuePanels: " + std::to_string(kv_heads) + " heads of " +
                                    std::to_string(head_dim) + " in " + toString(dtype));
  }
  reserve(std::max<int64_t>(capacity, 1));
}

KeyValuePanels KeyValuePanels::clone() const {
  KeyValuePanels copy = *this;
  copy.keys_ = keys_.clone();
  copy.values_ = values_.clone();
  return copy;
}

void KeyValuePanels::reserve(int64_t rows) {
  if (rows <= capacity_) return;
  const int64_t grown = round_up(std::max(rows, capacity_ + capacity_ / 2), kBlock);
  const at::TensorOptions options = at::TensorOptions().dtype(dtype_);
  const at::Tensor keys = at::zeros({kv_heads_, grown * head_dim_}, options);
  const at::Tensor values = at::zeros({kv_heads_, grown * padded_dim_}, options);
  if (capacity_ > 0) {
    keys.slice(1, 0, capacity_ * head_dim_).copy_(keys_);
    for (int64_t feature = 0; feature < padded_dim_; feature += lanes_) {
      const int64_t lanes = std::min(lanes_, padded_dim_ - feature);
      values.slice(1, feature * grown, feature * grown + capacity_ * lanes)
          .copy_(values_.slice(1, feature * capacity_, (feature + lanes) * capacity_));
    }
  }
  keys_ = keys, values_ = values, capacity_ = grown;
}

int64_t KeyValuePanels::key_slot(int64_t head, int64_t row, int64_t feature) const {
  const int64_t step = (row / lanes_) * (head_dim_ / pair_) + feature / pair_;
  return head * capacity_ * head_dim_ + (step * lanes_ + row % lanes_) * pair_ + feature % pair_;
}

int64_t KeyValuePanels::value_slot(int64_t head, int64_t row, int64_t feature) const {
  const int64_t panel = feature / lanes_, lanes = std::min(lanes_, padded_dim_ - panel * lanes_);
  return head * capacity_ * padded_dim_ + panel * lanes_ * capacity_ +
         (row / pair_ * lanes + feature % lanes_) * pair_ + row % pair_;
}

template <typename T>
void KeyValuePanels::write_row(int64_t row, const T* k, const T* v) {
  constexpr int64_t pair = sizeof(T) == 2 ? 2 : 1;
  T* keys = static_cast<T*>(keys_.mutable_data_ptr());
  T* values = static_cast<T*>(values_.mutable_data_ptr());
  for (int64_t head = 0; head < kv_heads_; ++head) {
    const T *key = k + head * head_dim_, *value = v + head * head_dim_;
    T* to = keys + key_slot(head, row, 0);
    for (int64_t d = 0; d < head_dim_; d += pair) {
      for (int64_t i = 0; i < pair; ++i) to[d * lanes_ + i] = key[d + i];
    }
    for (int64_t panel = 0; panel < head_dim_; panel += lanes_) {
      T* out = values + value_slot(head, row, panel);
      const int64_t count = std::min(lanes_, head_dim_ - panel);
      for (int64_t d = 0; d < count; ++d) out[d * pair] = value[panel + d];
      // The partner of a last even row takes part in a sum with weight zero; a leftover infinity would make it NaN.
      if (pair == 2 && row % 2 == 0) {
        for (int64_t d = 0; d < count; ++d) out[d * 2 + 1] = T{};
      }
    }
  }
}
template void KeyValuePanels::write_row<float>(int64_t, const float*, const float*);
template void KeyValuePanels::write_row<uint16_t>(int64_t, const uint16_t*, const uint16_t*);

void KeyValuePanels::prefetch(int64_t rows) const {
  // What the second cache level holds beside the weights that stream through it.
  constexpr int64_t kMostBytes = 256 << 10, kLine = 64;
  const int64_t item = pair_ == 2 ? 2 : 4, whole = std::min(round_up(rows, lanes_), capacity_);
  const auto fetch = [item](const at::Tensor& panels, int64_t first, int64_t count) {
    const char* at = static_cast<const char*>(panels.const_data_ptr()) + first * item;
    for (int64_t i = 0; i < count * item; i += kLine) __builtin_prefetch(at + i, 0, 2);
  };
  if (kv_heads_ * whole * (head_dim_ + padded_dim_) * item > kMostBytes) return;
  for (int64_t head = 0; head < kv_heads_; ++head) {
    fetch(keys_, head * capacity_ * head_dim_, whole * head_dim_);
    for (int64_t feature = 0; feature < padded_dim_; feature += lanes_) {
      const int64_t lanes = std::min(lanes_, padded_dim_ - feature);
      fetch(values_, head * capacity_ * padded_dim_ + feature * capacity_, whole * lanes);
    }
  }
}

template <typename T>
void KeyValuePanels::write_rows(int64_t first, const at::Tensor& k, const at::Tensor& v) {
  const at::Tensor dense_k = k.contiguous(), dense_v = v.contiguous();
  const T* from_k = static_cast<const T*>(dense_k.const_data_ptr());
  const T* from_v = static_cast<const T*>(dense_v.const_data_ptr());
  const int64_t width = kv_heads_ * head_dim_;
  for (int64_t i = 0; i < k.size(0); ++i) write_row(first + i, from_k + i * width, from_v + i * width);
}

void KeyValuePanels::write(int64_t first, const at::Tensor& k, const at::Tensor& v) {
  const auto fits = [&](const at::Tensor& x) {
    return x.dim() == 3 && x.size(1) == kv_heads_ && x.size(2) == head_dim_ && x.scalar_type() == dtype_;
  };
  if (!fits(k) || !fits(v) || k.size(0) != v.size(0)) {
    throw Error(ErrorKind::bug, "KeyValuePanels: rows " + c10::str(k.sizes()) + " and " + c10::str(v.sizes()) +
                                    " into a cache of " + std::to_string(kv_heads_) + " heads of " +
                                    std::to_string(head_dim_));
  }
  reserve(first + k.size(0));
  dtype_ == at::kFloat ? write_rows<float>(first, k, v) : write_rows<uint16_t>(first, k, v);
}

template <typename T>
at::Tensor KeyValuePanels::unpacked(int64_t length, bool of_keys) const {
  at::Tensor rows = at::empty({length, kv_heads_, head_dim_}, at::TensorOptions().dtype(dtype_));
  T* to = static_cast<T*>(rows.mutable_data_ptr());
  const T* from = static_cast<const T*>(of_keys ? keys_.const_data_ptr() : values_.const_data_ptr());
  for (int64_t row = 0; row < length; ++row) {
    for (int64_t head = 0; head < kv_heads_; ++head) {
      for (int64_t d = 0; d < head_dim_; ++d) {
        *to++ = from[of_keys ? key_slot(head, row, d) : value_slot(head, row, d)];
      }
    }
  }
  return rows;
}

at::Tensor KeyValuePanels::keys(int64_t length) const {
  return dtype_ == at::kFloat ? unpacked<float>(length, true) : unpacked<uint16_t>(length, true);
}

at::Tensor KeyValuePanels::values(int64_t length) const {
  return dtype_ == at::kFloat ? unpacked<float>(length, false) : unpacked<uint16_t>(length, false);
}

}  // namespace pacer::nn
