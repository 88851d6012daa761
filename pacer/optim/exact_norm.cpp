#include "pacer/optim/exact_norm.h"

#include <algorithm>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/optim/kernels.h"

namespace pacer::optim {

at::Tensor block_square_sums(const at::Tensor& values) {
  if (values.scalar_type() != at::kFloat || !values.is_contiguous()) {
    throw Error(ErrorKind::bug, "block_square_sums: the values are not contiguous f32");
  }
  const int64_t n = values.numel(), blocks = (n + kNormBlock - 1) / kNormBlock;
  if (device::in_host_memory(values)) {
    at::Tensor sums = at::empty({blocks}, values.options().requires_grad(false));
    const float* from = values.const_data_ptr<float>();
    float* to = sums.mutable_data_ptr<float>();
    at::parallel_for(0, blocks, 32, [&](int64_t begin, int64_t end) {
      block_square_sums_of(from + begin * kNormBlock, std::min(end * kNormBlock, n) - begin * kNormBlock, to + begin);
    });
    return sums;
  }
  at::Tensor squares = values.detach().reshape({-1}).square();
  squares = at::constant_pad_nd(squares, {0, blocks * kNormBlock - n}).view({blocks, kNormBlock});
  for (int64_t half = kNormBlock / 2; half > 0; half /= 2) {
    squares = squares.slice(1, 0, half) + squares.slice(1, half, 2 * half);
  }
  return squares.view({blocks});
}

at::Tensor tree_sum_of_leaves(const at::Tensor& leaves) {
  if (leaves.dim() < 1 || leaves.size(0) < 1) {
    throw Error(ErrorKind::bug, c10::str("tree_sum_of_leaves: no leaves in ", leaves.sizes()));
  }
  // Neighbours are added level by level and a last one without neighbour moves up: the tree of the header.
  at::Tensor level = leaves;
  while (level.size(0) > 1) {
    const int64_t n = level.size(0), even = n / 2 * 2;
    const at::Tensor sums = level.slice(0, 0, even, 2) + level.slice(0, 1, even, 2);
    level = even == n ? sums : at::cat({sums, level.slice(0, even, n)});
  }
  return level[0];
}

at::Tensor tree_sum(const at::Tensor& values) {
  if (values.dim() != 1) throw Error(ErrorKind::bug, c10::str("tree_sum: ", values.sizes(), ", expected [n]"));
  return values.size(0) == 0 ? at::zeros({}, values.options()) : tree_sum_of_leaves(values);
}

}  // namespace pacer::optim
