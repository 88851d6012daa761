#include "pacer/nn/rope.h"

#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/bfloat16.h"
#include "pacer/nn/clones.h"
#include "pacer/nn/plain.h"

namespace pacer::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What is left of a value after a store to T.
template <typename T>
float stored(float value) {
  return widen(narrow<T>(value));
}

struct Strides {
  int64_t row, head;
};

struct Turn {
  Strides in;
  const float *cos, *sin;
  float sign;  // -1 turns back, which is the gradient: a rotation's transpose is its inverse
  int64_t heads, half;
};

template <typename T>
[[gnu::always_inline]] inline void turn_rows(const Turn& turn, const T* x, T* y, int64_t begin, int64_t end) {
  const int64_t heads = turn.heads, half = turn.half;
  const float sign = turn.sign;
  for (int64_t row = begin; row < end; ++row) {
    const float *c = turn.cos + row * half, *s = turn.sin + row * half;
    for (int64_t head = 0; head < heads; ++head) {
      const T* from = x + row * turn.in.row + head * turn.in.head;
      T* to = y + (row * heads + head) * 2 * half;
      for (int64_t i = 0; i < half; ++i) {
        const float a = widen(from[i]), b = widen(from[i + half]);
        const float cosine = stored<T>(c[i]), sine = sign * stored<T>(s[i]);
        to[i] = narrow<T>(stored<T>(a * cosine) - stored<T>(b * sine));
        to[i + half] = narrow<T>(stored<T>(b * cosine) + stored<T>(a * sine));
      }
    }
  }
}
PACER_CLONES
void turn_some(const Turn& turn, const float* x, float* y, int64_t begin, int64_t end) {
  turn_rows(turn, x, y, begin, end);
}
PACER_CLONES
void turn_some(const Turn& turn, const uint16_t* x, uint16_t* y, int64_t begin, int64_t end) {
  turn_rows(turn, x, y, begin, end);
}

template <typename T>
void turn_all(const Turn& turn, const T* x, T* y, int64_t rows) {
  at::parallel_for(0, rows, 1 + 8192 / (turn.heads * turn.half + 1),
                   [&](int64_t begin, int64_t end) { turn_some(turn, x, y, begin, end); });
}

at::Tensor turned(const at::Tensor& x_any, const at::Tensor& cos, const at::Tensor& sin, float sign) {
  const at::Tensor x = x_any.stride(2) == 1 ? x_any : x_any.contiguous();
  const int64_t rows = x.size(0), heads = x.size(1), half = x.size(2) / 2;
  at::Tensor y = at::empty({rows, heads, 2 * half}, x.options());
  const Turn turn{
      {x.stride(0), x.stride(1)}, cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), sign, heads, half};
  if (x.scalar_type() == at::kFloat) {
    turn_all(turn, x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), rows);
  } else {
    turn_all(turn, static_cast<const uint16_t*>(x.const_data_ptr()), static_cast<uint16_t*>(y.mutable_data_ptr()),
             rows);
  }
  return y;
}

class Rope : public torch::autograd::Function<Rope> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& cos,
                            const at::Tensor& sin) {
    context->save_for_backward({cos, sin});
    return turned(x, cos, sin, 1.0f);
  }
  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    return {turned(grad_outputs[0], saved[0], saved[1], -1.0f), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void RopeTable::row(int64_t position, float* cos, float* sin) const {
  for (size_t i = 0; i < inverse_frequencies_.size(); ++i) {
    const double angle = static_cast<double>(position) * static_cast<double>(inverse_frequencies_[i]);
    cos[i] = static_cast<float>(std::cos(angle) * scaling_);
    sin[i] = static_cast<float>(std::sin(angle) * scaling_);
  }
}

RopeRows RopeTable::rows(const at::Tensor& positions) const {
  const at::Tensor dense = positions.contiguous();
  const int64_t count = dense.numel(), half = head_dim() / 2;
  RopeRows rows{at::empty({count, half}, at::kFloat), at::empty({count, half}, at::kFloat)};
  const int64_t* position = dense.const_data_ptr<int64_t>();
  float *cos = rows.cos.mutable_data_ptr<float>(), *sin = rows.sin.mutable_data_ptr<float>();
  at::parallel_for(0, count, 64, [=, this](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) row(position[t], cos + t * half, sin + t * half);
  });
  return rows;
}

at::Tensor apply_rope(const at::Tensor& x, const RopeRows& rows) {
  if (x.dim() != 3 || rows.cos.size(0) != x.size(0) || 2 * rows.cos.size(1) != x.size(2)) {
    throw Error(ErrorKind::bug, "apply_rope: x is " + c10::str(x.sizes()) + ", the table rows are " +
                                    c10::str(rows.cos.sizes()) + "; expected [T, heads, D] and [T, D/2]");
  }
  if (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16) {
    throw Error(ErrorKind::bug, std::string("apply_rope: dtype ") + toString(x.scalar_type()) +
                                    "; only Float and BFloat16 are computed");
  }
  if (!device::own_kernels(x)) return plain::apply_rope(x, rows);
  return Rope::apply(x, rows.cos, rows.sin);
}

}  // namespace pacer::nn
