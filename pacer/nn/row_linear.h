// A frozen linear layer for few rows: weights packed once for streaming, sums in f32.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/nn/panel_arena.h"
#include "pacer/nn/row_kernels.h"

namespace pacer::nn {

// y[m][n] = sum over k of x[m][k] * W[n][k], in f32 and in one order per output: a row has the same bits alone, among
// other rows, and on any number of threads. Up to eight rows read the weights once and cost little more than one.
//
// T: float, or uint16_t for bf16. Immutable, usable from several threads.
template <typename T>
class RowLinear {
 public:
  // Matrices [N_i, K] in the dtype of T, stacked along the outputs into one layer; copied.
  // Throws Error{format} when shapes or dtypes do not fit.
  // arena: where the packed copy goes, so that the layers of a model follow each other.
  RowLinear(const std::vector<at::Tensor>& weights, PanelArena& arena, const RowKernels<T>& kernels = row_kernels<T>());

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t stride() const { return stride_; }  // floats between rows of y: outputs rounded up to 16
  uint64_t bytes() const { return bytes_; }

  // x [rows, K] dense -> y [rows, stride()]; what lies between outputs and stride is zero.
  void sums(const T* x, int64_t rows, float* y) const { sums(x, rows, y, stride_); }
  // The same into the first stride() columns of rows that are y_stride apart.
  void sums(const T* x, int64_t rows, float* y, int64_t y_stride) const;

  // Weights are read a panel of outputs at a time: outputs p * lanes() and on, the last panel fewer.
  int64_t lanes() const { return kernels_->lanes; }
  int64_t panels() const { return (stride_ + lanes() - 1) / lanes(); }
  // One panel's outputs of one row x [K], with the bits that sums() gives them: y [lanes()].
  void panel_sums(const T* x, int64_t p, float* y) const;

  // x [rows, K] in the dtype of T -> [rows, N] f32.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  const RowKernels<T>* kernels_;
  int64_t inputs_ = 0, outputs_ = 0, stride_ = 0;
  int64_t steps_ = 0;  // of a sum: K in f32, K / 2 rounded up in bf16
  uint64_t bytes_ = 0;
  std::shared_ptr<T> panels_;
};

}  // namespace pacer::nn
