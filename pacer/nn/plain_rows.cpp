#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/rsqrt.h>

#include "pacer/device/kernels.h"
#include "pacer/device/plugin.h"
#include "pacer/nn/plain.h"

namespace pacer::nn::plain {

int64_t tile_columns(c10::Device device) {
  const int64_t most = device::most_reduced_columns(device);
  return most > 0 ? std::min(most, kTileColumns) : kTileColumns;
}

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon) {
  if (auto* fused = device::fused_operators(x.device()).rms_norm) return fused(x, weight, epsilon);
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor scale = at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + epsilon);
  return ((wide * scale).to(x.scalar_type()) * weight).contiguous();
}

at::Tensor apply_rope(const at::Tensor& x, const RopeRows& rows) {
  const at::Tensor cos = rows.cos.to(x.options()).unsqueeze(1), sin = rows.sin.to(x.options()).unsqueeze(1);
  const int64_t half = x.size(2) / 2;
  const at::Tensor a = x.slice(2, 0, half), b = x.slice(2, half, 2 * half);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 2);
}

at::Tensor product_f32(const at::Tensor& x, const at::Tensor& weight) {
  const at::Tensor wide = x.to(at::kFloat);
  if (weight.scalar_type() == at::kFloat) return at::linear(wide, weight);
  at::Tensor out = at::empty({x.size(0), weight.size(0)}, wide.options());
  for (int64_t begin = 0; begin < weight.size(0); begin += kTileColumns) {
    const int64_t end = std::min(begin + kTileColumns, weight.size(0));
    out.slice(1, begin, end).copy_(at::linear(wide, weight.slice(0, begin, end).to(at::kFloat)));
  }
  return out;
}

}  // namespace pacer::nn::plain
