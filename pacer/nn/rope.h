// Rotary position embedding (Su et al. 2021) in the half-rotation form of Hugging Face checkpoints.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// Cosines and sines of some rows, scaled by the attention factor of the scaling method.
struct RopeRows {
  at::Tensor cos;  // [T, D/2] f32
  at::Tensor sin;  // [T, D/2] f32
};

// The frequencies of one model. They are f32 as in the reference implementation, in every compute dtype: rounded to
// bf16 they would be a radian off at position 1000. The angle position * frequency is taken in f64, because its f32
// rounding alone reaches 1e-3 at position 131071.
class RopeTable {
 public:
  // inverse_frequencies: D/2 values; scaling multiplies cosines and sines (1 except for YaRN).
  explicit RopeTable(std::vector<float> inverse_frequencies, double scaling = 1.0)
      : inverse_frequencies_(std::move(inverse_frequencies)), scaling_(scaling) {}

  const std::vector<float>& inverse_frequencies() const { return inverse_frequencies_; }
  double scaling() const { return scaling_; }
  int64_t head_dim() const { return 2 * static_cast<int64_t>(inverse_frequencies_.size()); }

  RopeRows rows(const at::Tensor& positions) const;  // positions [T] i64

  // One row into cos[D/2] and sin[D/2].
  void row(int64_t position, float* cos, float* sin) const;

 private:
  std::vector<float> inverse_frequencies_;
  double scaling_;
};

// With x = (a, b) split in the middle of the last dimension: (a cos - b sin, b cos + a sin). In bf16 cosines, sines and
// each product are rounded, as in the models' reference implementation: with other roundings a bf16 model is another
// model, one to two percent away in its logits.
//
//   x        [T, heads, D]  f32 or bf16; only the last dimension must be dense
//   returns  [T, heads, D]  dtype of x, contiguous
//
// Differentiable in x: the backward turns by the negative angle. Throws Error{bug} when the shapes do not fit.
at::Tensor apply_rope(const at::Tensor& x, const RopeRows& rows);

}  // namespace pacer::nn
