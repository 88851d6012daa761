// The products of a Newton-Schulz iteration: factors and results in its storage type, sums in f32.
#pragma once

#include <ATen/core/Tensor.h>

namespace pacer::optim {

// All matrices are batches [B, r, c] of one element type, contiguous. On the CPU a matrix of a batch is computed by
// itself, so that its bits do not depend on the others.
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
  // symmetric but for rounding. An error that is not symmetric must not be transposed on its way: (Z + aI) E is small
  // where Z E^T + a E is not.
  at::Tensor symmetric(const at::Tensor& a, const at::Tensor& b, double alpha, const at::Tensor& c, double beta) const;

  // a b + beta c, with a symmetric a.
  at::Tensor product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& c = {}, double beta = 0) const;

  // a + diagonal I
  at::Tensor plus_diagonal(const at::Tensor& a, double diagonal) const;

 private:
  at::Tensor rounded(const at::Tensor& values) const;
  bool f16_on_cpu_;
  at::ScalarType type_;  // of the tensors
};

}  // namespace pacer::optim
