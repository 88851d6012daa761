// Keys and values of one sequence and layer, laid out as the panels that the row kernels stream.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// Scores are a product of query rows with a [length, D] matrix of keys, the result one of probability rows with the
// [D, length] matrix of values. Both are kept packed like the weights of a row linear (row_kernels.h): `lanes` outputs
// side by side, and in bf16 two steps of the sum next to each other. So one kernel serves weights, keys and values.
//
// Slots at and after the newest row are zero or leftovers of cropped rows; readers mask them. Not thread-safe.
class KeyValuePanels {
 public:
  // dtype: f32 or bf16. capacity: rows to make room for; more come by growth. lanes: of the kernel set that will read
  // (16, 32 or 64); 0: of the one in use.
  KeyValuePanels(int64_t kv_heads, int64_t head_dim, at::ScalarType dtype, int64_t capacity, int64_t lanes = 0);

  int64_t capacity() const { return capacity_; }
  int64_t kv_heads() const { return kv_heads_; }
  int64_t head_dim() const { return head_dim_; }
  at::ScalarType dtype() const { return dtype_; }
  uint64_t bytes() const { return keys_.nbytes() + values_.nbytes(); }
  KeyValuePanels clone() const;

  void reserve(int64_t rows);  // growth copies; existing rows keep their bits

  // Rows [first, first + T): k and v [T, kv_heads, D], dtype of the cache, D dense. Room is made as needed.
  void write(int64_t first, const at::Tensor& k, const at::Tensor& v);
  // One row from k[kv_heads * D] and v[kv_heads * D]; there must be room.
  template <typename T>
  void write_row(int64_t row, const T* k, const T* v);

  // Asks for the first `rows` rows ahead of their use. They were pushed out of the caches by the weights of all other
  // layers, and attention alone reads too little at a time to fetch them at the speed of memory.
  void prefetch(int64_t rows) const;

  // The first `length` rows as [length, kv_heads, D], copies.
  at::Tensor keys(int64_t length) const;
  at::Tensor values(int64_t length) const;

  // Panels of one head. Keys: [capacity / lanes][D / pair][lanes][pair]. Values: [D / lanes][capacity / pair][lanes]
  // [pair] with the last panel as wide as what is left of D, rounded up to 16. pair: 2 in bf16, 1 in f32.
  template <typename T>
  const T* key_panels(int64_t head) const {
    return static_cast<const T*>(keys_.const_data_ptr()) + head * capacity_ * head_dim_;
  }
  template <typename T>
  const T* value_panels(int64_t head) const {
    return static_cast<const T*>(values_.const_data_ptr()) + head * capacity_ * padded_dim_;
  }
  int64_t lanes() const { return lanes_; }
  int64_t padded_dim() const { return padded_dim_; }  // D rounded up to 16
  int64_t pair() const { return pair_; }

 private:
  template <typename T>
  void write_rows(int64_t first, const at::Tensor& k, const at::Tensor& v);
  template <typename T>
  at::Tensor unpacked(int64_t length, bool of_keys) const;
  int64_t key_slot(int64_t head, int64_t row, int64_t feature) const;
  int64_t value_slot(int64_t head, int64_t row, int64_t feature) const;

  int64_t kv_heads_, head_dim_, padded_dim_;
  at::ScalarType dtype_;
  int64_t pair_, lanes_;
  int64_t capacity_ = 0;
  at::Tensor keys_, values_;
};

}  // namespace pacer::nn
