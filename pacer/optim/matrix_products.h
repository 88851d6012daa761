// The products of a Newton-Schulz iteration: factors and results in its storage type, sums in f32.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::optim {

struct MatrixProduct;

// For one thread. All matrices are batches [B, r, c] of one element type, contiguous. On the CPU a matrix of a batch is
// computed by itself, so that its bits do not depend on the others.
class Products {
 public:
  // storage: f32, bf16 or f16. On the CPU f16 is kept as f32 values that f16 can hold: there are no f16 products worth
  // the name, and widening is exact.
  Products(at::ScalarType storage, const at::Device& device);

  // f32 values as this storage keeps them.
  at::Tensor store(const at::Tensor& values) const;

  // a a^T
  at::Tensor gram(const at::Tensor& a) const;

  // alpha a b + beta c, rounded once, for polynomials a, b, c of one symmetric matrix: they commute, so the result is
  // symmetric but for rounding. Our own kernels compute the upper triangle and mirror it.
  at::Tensor symmetric(const at::Tensor& a, const at::Tensor& b, double alpha, const at::Tensor& c, double beta) const;

  // a b + beta c, with a symmetric a.
  at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c = {}, double beta = 0) const;

  // a + diagonal I
  at::Tensor plus_diagonal(const at::Tensor& a, double diagonal) const;

 private:
  // A result of one of the products above, its memory taken from an earlier one that nobody holds any more: fresh
  // memory costs a page fault for every 4 kB.
  at::Tensor result(at::IntArrayRef sizes, const at::TensorOptions& options) const;
  at::Tensor compute(const MatrixProduct& product) const;
  at::Tensor rounded(const at::Tensor& values) const;
  bool f16_on_cpu_;
  at::ScalarType type_;  // of the tensors
  mutable std::vector<at::Tensor> results_;
};

}  // namespace pacer::optim
