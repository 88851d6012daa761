// One linear layer of a model for few rows, made of matrices that may be stored in different ways.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/nn/panel_arena.h"
#include "pacer/nn/quant_linear.h"
#include "pacer/nn/row_linear.h"

namespace pacer::nn {

// A weight as its file holds it: f32 or bf16 values [N, K], or blocks.
using RowMatrix = std::variant<at::Tensor, QuantMatrix>;

// Matrices of one width stacked along the outputs. Neighbours that are stored in the same way become one product. With
// T = float every kind may stand beside every other: rows are rounded to bf16 for a bf16 matrix and to bytes for
// blocks, and sums are f32. With T = uint16_t (bf16 rows) all matrices are bf16.
//
// The bits of a row depend on that row alone, as in RowLinear and QuantLinear. Usable from several threads.
template <typename T>
class RowLayer {
 public:
  // Throws Error{format} when shapes, widths or dtypes do not fit.
  RowLayer(const std::vector<RowMatrix>& weights, PanelArena& arena);

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t stride() const { return stride_; }  // floats between rows of y; at least outputs()
  uint64_t bytes() const;

  // x [rows, K] dense -> y [rows, stride()]; what lies behind outputs() has no meaning.
  void sums(const T* x, int64_t rows, float* y) const;

 private:
  using Part = std::variant<RowLinear<float>, RowLinear<uint16_t>, QuantLinear>;
  void add(const std::vector<RowMatrix>& group, PanelArena& arena);

  int64_t inputs_ = 0, outputs_ = 0, stride_ = 0;
  std::vector<Part> parts_;
};

}  // namespace pacer::nn
