// A product added to logits for the sake of their maximum: weights that cannot hold it are not read.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/nn/panel_arena.h"
#include "pacer/nn/row_kernels.h"
#include "pacer/nn/row_linear.h"

namespace pacer::nn {

// logits[n] += W[n] u, where for a greedy choice only the largest sum matters. |W[n] u| <= |W[n]| |u| bounds each; a
// panel of outputs none of whose bounds reaches the best sum so far stays as it is.
//
// T: float, or uint16_t for bf16. Not thread-safe: it remembers the last call.
template <typename T>
class LeadingSums {
 public:
  // weight [N, K] in the dtype of T; copied into the arena.
  LeadingSums(const at::Tensor& weight, PanelArena& arena, const RowKernels<T>& kernels = row_kernels<T>());

  int64_t outputs() const { return table_.outputs(); }

  // u [K], logits [N]: all sums.
  void add(const T* u, float* logits) const;

  // Adds enough for the first maximum to be right, with the bits of add(), and returns its place. What was left out is
  // not larger than the maximum before its addition nor after it. A value that is not a number is never left out.
  int64_t add_leading(const T* u, float* logits) const;
  // Adds what the last add_leading, which had the same u and logits, left out.
  void add_rest(const T* u, float* logits) const;

  // Panels that the last add_leading read, of how many.
  int64_t panels_read() const { return panels_read_; }
  int64_t panels() const { return table_.panels(); }

 private:
  void add_panel(const T* u, int64_t panel, float* logits) const;
  // Of panels that were not read, those with a bound that is not below `best`; then they count as read.
  std::vector<int64_t> take_open(const float* logits, float length, float best) const;

  RowLinear<T> table_;
  std::vector<float> norms_;         // |W[n]|, rounded up
  mutable std::vector<float> sums_;  // kept between calls: a vocabulary of floats costs page faults each time
  mutable std::vector<char> read_;   // by the last add_leading, per panel
  mutable int64_t panels_read_ = 0;
};

}  // namespace pacer::nn
