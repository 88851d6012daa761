// A few rows in the form in which a kernel set multiplies them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "pacer/nn/row_kernels.h"

namespace pacer::nn {

// What a RowOperand may need; grown, never shrunk.
template <typename T>
struct RowScratch {
  std::vector<T> padded;
  std::vector<float> wide;
};

template <typename T>
class RowOperand {
 public:
  // x: rows of `inputs` values, x_stride apart; what their last step lacks is zero. x and scratch must outlive this.
  RowOperand(const RowKernels<T>& kernels, const T* x, int64_t x_stride, int64_t rows, int64_t inputs,
             RowScratch<T>& scratch)
      : kernels_(kernels), fetch_(static_cast<size_t>(measured_fetch())), rows_(rows), stride_(x_stride), x_(x) {
    constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;
    const int64_t width = (inputs + kPair - 1) / kPair * kPair;
    if (kernels.widen != nullptr) {
      wide_ = room(scratch.wide, rows * width);
      for (int64_t m = 0; m < rows; ++m) {
        float* to = scratch.wide.data() + m * width;
        kernels.widen(x + m * x_stride, inputs, to);
        std::fill(to + inputs, to + width, 0.0f);
      }
      stride_ = width;
    } else if (width != inputs) {
      x_ = room(scratch.padded, rows * width);
      for (int64_t m = 0; m < rows; ++m) {
        T* to = scratch.padded.data() + m * width;
        std::copy_n(x + m * x_stride, inputs, to);
        std::fill(to + inputs, to + width, T{});
      }
      stride_ = width;
    }
  }

  // y [rows][lanes] with one panel (RowKernels::product), as many rows at a time as a call takes.
  void times(const T* panel, int64_t steps, int64_t lanes, float* y, int64_t y_stride) const {
    const int64_t groups = (rows_ + kernels_.most_rows - 1) / kernels_.most_rows;
    const int64_t group = groups > 0 ? (rows_ + groups - 1) / groups : 0;
    for (int64_t m = 0; m < rows_; m += group) {
      const int64_t rows = std::min(group, rows_ - m);
      if (wide_ != nullptr) {
        kernels_.wide_product[fetch_](wide_ + m * stride_, stride_, rows, panel, steps, lanes, y + m * y_stride,
                                      y_stride);
      } else {
        kernels_.product[fetch_](x_ + m * stride_, stride_, rows, panel, steps, lanes, y + m * y_stride, y_stride);
      }
    }
  }

 private:
  template <typename U>
  static const U* room(std::vector<U>& vector, int64_t count) {
    if (vector.size() < static_cast<size_t>(count)) vector.resize(static_cast<size_t>(count));
    return vector.data();
  }

  const RowKernels<T>& kernels_;
  size_t fetch_;
  int64_t rows_, stride_;
  const T* x_;
  const float* wide_ = nullptr;
};

}  // namespace pacer::nn
