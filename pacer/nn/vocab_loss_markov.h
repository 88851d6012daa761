// The gradient of Markov rows that several draft rows share: one row of the vocabulary's width each, not one per draft
// row, and their products over many of them at once.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::nn::detail {

// Gradient rows of the logits, summed over the draft rows that share a Markov row, wait here until there is no room.
// Then d_markov += G markov_out and d_markov_out += G^T markov. A part of the vocabulary's gradient is added in f32; in
// bf16 it was rounded once, from a product over all waiting rows.
class MarkovGradient {
 public:
  // buffer: flat, [capacity * n] of the compute dtype. d_markov [M, r] is zero at first; d_markov_out [n, r] f32.
  MarkovGradient(const at::Tensor& buffer, const at::Tensor& markov, const at::Tensor& markov_out,
                 const at::Tensor& d_markov, const at::Tensor& d_markov_out);

  int64_t capacity() const { return rows_.size(0); }

  // Places for the sums of these Markov rows, [count, n]; what waited before is worked off when they do not fit.
  at::Tensor places(const std::vector<int64_t>& markov_rows);
  void finish();

 private:
  at::Tensor rows_;  // [capacity, n]
  at::Tensor markov_, markov_out_, d_markov_, d_markov_out_;
  std::vector<int64_t> waiting_;  // Markov row of each row in use
};

}  // namespace pacer::nn::detail
