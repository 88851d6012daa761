#include "pacer/nn/row_linear.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "pacer/base/error.h"
#include "pacer/nn/row_operand.h"

namespace pacer::nn {
namespace {

// Fewer bytes than this are not worth waking another thread for.
constexpr int64_t kBytesPerTask = 256 << 10;

template <typename T>
constexpr int64_t kPair = sizeof(T) == 2 ? 2 : 1;
template <typename T>
constexpr at::ScalarType kType = sizeof(T) == 2 ? at::kBFloat16 : at::kFloat;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Rows of weights into one panel of [steps][lanes], a step of four bytes: one f32 or two neighbouring bf16. A few steps
// of all rows at a time, so that both sides stay in the first cache level; null for outputs that only pad.
template <typename T>
void pack_panel(const T* const* rows, int64_t inputs, int64_t lanes, T* panel) {
  constexpr int64_t pair = kPair<T>, kBlock = 32;
  const int64_t whole = inputs / pair;
  for (int64_t begin = 0; begin < whole; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, whole);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      const T* row = rows[lane];
      if (row == nullptr) continue;
      for (int64_t step = begin; step < end; ++step) {
        std::memcpy(panel + (step * lanes + lane) * pair, row + step * pair, sizeof(T) * pair);
      }
    }
  }
  if (inputs % pair == 0) return;
  for (int64_t lane = 0; lane < lanes; ++lane) {  // the last one's partner stays zero
    if (rows[lane] != nullptr) panel[(whole * lanes + lane) * pair] = rows[lane][inputs - 1];
  }
}

}  // namespace

template <typename T>
RowLinear<T>::RowLinear(const std::vector<at::Tensor>& weights, PanelArena& arena, const RowKernels<T>& kernels)
    : kernels_(&kernels) {
  for (const at::Tensor& weight : weights) {
    if (weight.dim() != 2 || weight.scalar_type() != kType<T> || (inputs_ != 0 && weight.size(1) != inputs_)) {
      throw Error(ErrorKind::format, "RowLinear: weight " + c10::str(weight.sizes()) + " in " +
                                         toString(weight.scalar_type()) + " beside layers of " +
                                         std::to_string(inputs_) + " inputs");
    }
    inputs_ = weight.size(1);
    outputs_ += weight.size(0);
  }
  steps_ = round_up(inputs_, kPair<T>) / kPair<T>;
  stride_ = round_up(outputs_, 16);
  bytes_ = static_cast<uint64_t>(stride_ * steps_ * kPair<T>) * sizeof(T);
  const std::shared_ptr<std::byte> memory = arena.take(bytes_);
  panels_ = {memory, reinterpret_cast<T*>(memory.get())};
  T* panels = panels_.get();
  std::vector<at::Tensor> dense;  // keeps what the pointers point to
  std::vector<const T*> rows;
  for (const at::Tensor& weight : weights) {
    dense.push_back(weight.contiguous());
    const T* from = static_cast<const T*>(dense.back().const_data_ptr());
    for (int64_t row = 0; row < weight.size(0); ++row) rows.push_back(from + row * inputs_);
  }
  rows.resize(static_cast<size_t>(stride_), nullptr);
  const int64_t panel_width = steps_ * kPair<T>, most = kernels.lanes;
  at::parallel_for(0, (stride_ + most - 1) / most, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * most;
      pack_panel(rows.data() + first, inputs_, std::min(most, stride_ - first), panels + first * panel_width);
    }
  });
}

template <typename T>
void RowLinear<T>::panel_sums(const T* x, int64_t p, float* y) const {
  static thread_local RowScratch<T> scratch;
  const int64_t lanes = kernels_->lanes, panel_width = steps_ * kPair<T>;
  RowOperand<T>(*kernels_, x, inputs_, 1, inputs_, scratch)
      .times(panels_.get() + p * lanes * panel_width, steps_, std::min(lanes, stride_ - p * lanes), y, lanes);
}

template <typename T>
void RowLinear<T>::sums(const T* x, int64_t rows, float* y, int64_t y_stride) const {
  if (rows == 0) return;
  static thread_local RowScratch<T> scratch;
  const RowOperand<T> operand(*kernels_, x, inputs_, rows, inputs_, scratch);
  const T* panels = panels_.get();
  const int64_t lanes = kernels_->lanes, panel_width = steps_ * kPair<T>;
  const int64_t panel_bytes = lanes * panel_width * static_cast<int64_t>(sizeof(T));
  at::parallel_for(0, this->panels(), 1 + kBytesPerTask / panel_bytes, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      operand.times(panels + p * lanes * panel_width, steps_, std::min(lanes, stride_ - p * lanes), y + p * lanes,
                    y_stride);
    }
  });
}

template <typename T>
at::Tensor RowLinear<T>::operator()(const at::Tensor& x) const {
  if (x.dim() != 2 || x.size(1) != inputs_ || x.scalar_type() != kType<T>) {
    throw Error(ErrorKind::format, "RowLinear: rows " + c10::str(x.sizes()) + " in " + toString(x.scalar_type()) +
                                       " into a layer of " + std::to_string(inputs_) + " inputs in " +
                                       toString(kType<T>));
  }
  const at::Tensor dense = x.contiguous();
  at::Tensor y = at::empty({x.size(0), stride_}, at::TensorOptions().dtype(at::kFloat));
  sums(static_cast<const T*>(dense.const_data_ptr()), x.size(0), y.mutable_data_ptr<float>());
  return y.narrow(1, 0, outputs_).contiguous();
}

template class RowLinear<float>;
template class RowLinear<uint16_t>;

}  // namespace pacer::nn
