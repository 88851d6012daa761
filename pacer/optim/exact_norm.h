// The global norm whose bits do not depend on how gradients are divided among ranks.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace pacer::optim {

// Sums of squares of blocks of 1,024 elements (kNormBlock), f32 [ceil(n / 1024)]: within a block the squares, padded
// with zeros, are folded by halves. A part of a tensor that begins at a multiple of 1,024 has the same sums as in the
// whole, so ranks compute the blocks of their parts, put them into a zero vector of all blocks, and add the vectors up:
// every place has one addend that is not zero, and any order of summation gives the same bits.
//   values  f32, contiguous, any shape, any device
at::Tensor block_square_sums(const at::Tensor& values);

// Sum of [n] values by the tree T(lo, n) = T(lo, h) + T(lo + h, n - h), h the largest power of two below n; no
// dimensions. 0 for n = 0. Any floating dtype; rounded after every addition.
at::Tensor tree_sum(const at::Tensor& values);

// The same tree over tensors of one shape, for leaves that arrive as a batch [n, ...]; returns [...]. n >= 1.
at::Tensor tree_sum_of_leaves(const at::Tensor& leaves);

}  // namespace pacer::optim
