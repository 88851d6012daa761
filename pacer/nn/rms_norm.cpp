#include "pacer/nn/rms_norm.h"

#include <algorithm>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/bfloat16.h"
#include "pacer/nn/plain.h"
#include "pacer/nn/row_kernels.h"

namespace pacer::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Sixteen partial sums, folded in halves: the order is fixed by H alone, and the compiler can keep them in registers.
template <typename Term>
float sum_of(int64_t count, const Term& term) {
  float part[16] = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) part[lane] += term(i + lane);
  }
  for (int64_t lane = 0; i < count; ++i, ++lane) part[lane] += term(i);
  for (int64_t width = 8; width > 0; width /= 2) {
    for (int64_t lane = 0; lane < width; ++lane) part[lane] += part[lane + width];
  }
  return part[0];
}

template <typename T>
void forward_rows(const T* x, const T* weight, T* y, float* scales, int64_t rows, int64_t width, double epsilon) {
  const RowKernels<T>& kernels = row_kernels<T>();
  at::parallel_for(0, rows, 1 + 16384 / width, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      scales[row] = kernels.rms_norm(x + row * width, weight, width, static_cast<float>(epsilon), y + row * width);
    }
  });
}

// With n = x * scale and g = dy * weight:  dx = scale * (g - n * mean(g * n)),  dweight = sum over rows of dy * n.
// The rows of dweight are added in order by column ranges, so its bits do not depend on the number of threads; in
// groups first, because one long f32 sum loses a digit over the thousands of rows that a step has.
template <typename T>
void backward_rows(const T* x, const T* weight, const T* dy, const float* scales, T* dx, float* dweight, int64_t rows,
                   int64_t width) {
  constexpr int64_t kGroup = 64;
  at::parallel_for(0, rows, 1 + 16384 / width, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const T *in = x + row * width, *grad = dy + row * width;
      T* out = dx + row * width;
      const float scale = scales[row];
      const float dot =
          sum_of(width, [=](int64_t i) { return widen(grad[i]) * widen(weight[i]) * (widen(in[i]) * scale); });
      const float mean = dot / static_cast<float>(width);
      for (int64_t i = 0; i < width; ++i) {
        out[i] = narrow<T>(scale * (widen(grad[i]) * widen(weight[i]) - widen(in[i]) * scale * mean));
      }
    }
  });
  at::parallel_for(0, width, 1 + 16384 / (rows + 1), [=](int64_t begin, int64_t end) {
    std::vector<float> group(static_cast<size_t>(end - begin));
    float* const sums = group.data();
    for (int64_t first = 0; first < rows; first += kGroup) {
      std::fill_n(sums, end - begin, 0.0f);
      for (int64_t row = first; row < std::min(first + kGroup, rows); ++row) {
        const T *in = x + row * width, *grad = dy + row * width;
        for (int64_t i = begin; i < end; ++i) sums[i - begin] += widen(grad[i]) * (widen(in[i]) * scales[row]);
      }
      for (int64_t i = begin; i < end; ++i) dweight[i] += sums[i - begin];
    }
  });
}

const uint16_t* bits(const at::Tensor& tensor) { return static_cast<const uint16_t*>(tensor.const_data_ptr()); }
uint16_t* mutable_bits(const at::Tensor& tensor) { return static_cast<uint16_t*>(tensor.mutable_data_ptr()); }

class RmsNorm : public torch::autograd::Function<RmsNorm> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_any, const at::Tensor& weight_any,
                            double epsilon) {
    const at::Tensor x = x_any.contiguous(), weight = weight_any.contiguous();
    const int64_t width = weight.size(0), rows = width == 0 ? 0 : x.numel() / width;
    at::Tensor y = at::empty_like(x, at::MemoryFormat::Contiguous);
    at::Tensor scales = at::empty({rows}, x.options().dtype(at::kFloat));
    if (x.scalar_type() == at::kFloat) {
      forward_rows(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), y.mutable_data_ptr<float>(),
                   scales.mutable_data_ptr<float>(), rows, width, epsilon);
    } else {
      forward_rows(bits(x), bits(weight), mutable_bits(y), scales.mutable_data_ptr<float>(), rows, width, epsilon);
    }
    context->save_for_backward({x, weight, scales});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& grad_outputs) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1], &scales = saved[2];
    const at::Tensor dy = grad_outputs[0].contiguous();
    const int64_t width = weight.size(0), rows = scales.size(0);
    at::Tensor dx = at::empty_like(x);
    at::Tensor dweight = at::zeros({width}, x.options().dtype(at::kFloat));
    if (x.scalar_type() == at::kFloat) {
      backward_rows(x.const_data_ptr<float>(), weight.const_data_ptr<float>(), dy.const_data_ptr<float>(),
                    scales.const_data_ptr<float>(), dx.mutable_data_ptr<float>(), dweight.mutable_data_ptr<float>(),
                    rows, width);
    } else {
      backward_rows(bits(x), bits(weight), bits(dy), scales.const_data_ptr<float>(), mutable_bits(dx),
                    dweight.mutable_data_ptr<float>(), rows, width);
    }
    return {dx, dweight.to(weight.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (weight.dim() != 1 || x.dim() < 1 || x.size(-1) != weight.size(0)) {
    throw Error(ErrorKind::format,
                "rms_norm: rows of width " + std::to_string(x.dim() < 1 ? 0 : x.size(-1)) + ", weight of width " +
                    std::to_string(weight.numel()),
                "the checkpoint and its config.json disagree about hidden_size or head_dim");
  }
  if (x.scalar_type() != weight.scalar_type() || (x.scalar_type() != at::kFloat && x.scalar_type() != at::kBFloat16)) {
    throw Error(ErrorKind::format, std::string("rms_norm: rows in ") + toString(x.scalar_type()) + ", weight in " +
                                       toString(weight.scalar_type()) + "; both must be Float or both BFloat16");
  }
  if (!device::own_kernels(x)) return plain::rms_norm(x, weight, epsilon);
  return RmsNorm::apply(x, weight, epsilon);
}

}  // namespace pacer::nn
