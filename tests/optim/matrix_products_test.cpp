#include "pacer/optim/matrix_products.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/randn.h>

#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

class MatrixProducts : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  Products products{GetParam(), at::kCPU};

  at::Tensor values(const std::vector<int64_t>& sizes) const { return products.store(at::randn(sizes)); }

  // A polynomial of `r` that is symmetric bit by bit.
  at::Tensor polynomial(const at::Tensor& r, double a, double b) const {
    const at::Tensor wide = r.to(at::kDouble), sum = wide * a + at::bmm(wide, wide) * b;
    return products.store(((sum + sum.transpose(1, 2)) * 0.5).to(at::kFloat));
  }

  // Sums are f32 and the result is rounded once to the storage.
  void expect_close(const at::Tensor& result, const at::Tensor& exact) const {
    const double bound = GetParam() == at::kFloat ? 2e-6 : GetParam() == at::kHalf ? 6e-4 : 5e-3;
    EXPECT_TRUE(test::close_l2(result, exact, bound)) << exact.sizes();
    if (GetParam() == at::kFloat) return;
    // Half an ulp at most, of f32 sums: all but those next to a tie are the exact result rounded. One may always be
    // next to a tie: the library's f32 sums depend on where its operands lie in memory.
    const at::Tensor rounded = exact.to(GetParam()).to(at::kDouble);
    const double others = (rounded != result.to(at::kDouble)).to(at::kDouble).sum().item<double>();
    EXPECT_LE(others, std::max(1.0, 0.02 * static_cast<double>(exact.numel()))) << exact.sizes();
  }

  void expect_near_symmetric(const at::Tensor& t) const {
    const double bound = GetParam() == at::kFloat ? 2e-6 : GetParam() == at::kHalf ? 1.2e-3 : 1e-2;
    EXPECT_TRUE(test::close_l2(t, t.transpose(1, 2), bound));
  }

  static at::Tensor wide(const at::Tensor& t) { return t.to(at::kDouble); }
};

TEST_P(MatrixProducts, GramOfAnyShape) {
  for (const auto& [k, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 1},
                                                                     {1, 7},
                                                                     {2, 3},
                                                                     {15, 17},
                                                                     {16, 32},
                                                                     {17, 33},
                                                                     {33, 64},
                                                                     {48, 5},
                                                                     {63, 65},
                                                                     {64, 64},
                                                                     {65, 129},
                                                                     {80, 31},
                                                                     {97, 101},
                                                                     {128, 96},
                                                                     {131, 7},
                                                                     {200, 3}}) {
    const at::Tensor x = values({2, k, n});
    const at::Tensor gram = products.gram(x);
    expect_close(gram, at::bmm(wide(x), wide(x).transpose(1, 2)));
    expect_near_symmetric(gram);
  }
}

TEST_P(MatrixProducts, SymmetricOfPolynomials) {
  for (const int64_t k : {1, 2, 15, 16, 31, 47, 64, 65, 111, 150}) {
    const at::Tensor x = products.store(at::randn({1, k, 2 * k}) / std::sqrt(2.0 * static_cast<double>(k)));
    const at::Tensor r = products.gram(x), z = polynomial(r, 2.0, 0.5);
    // z is rounded, so it commutes with r but for that: the triangle that counts is the upper one.
    const at::Tensor result = products.symmetric(r, z, 0.75, r, 1.5);
    expect_close(result.triu(), (at::bmm(wide(r), wide(z)) * 0.75 + wide(r) * 1.5).triu());
    expect_near_symmetric(result);
  }
}

TEST_P(MatrixProducts, ProductWithTheLongSide) {
  for (const auto& [k, n] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 9}, {2, 3}, {7, 16}, {16, 17}, {33, 47}, {64, 130}, {65, 70}, {97, 101}}) {
    const at::Tensor q = polynomial(products.gram(values({2, k, n})), 0.1, 0.01), x = values({2, k, n});
    expect_close(products.product(q, x), at::bmm(wide(q), wide(x)));
    expect_close(products.product(q, x, x, -1.25), at::bmm(wide(q), wide(x)) - wide(x) * 1.25);
  }
}

TEST_P(MatrixProducts, BitsDependNeitherOnThreadsNorOnTheBatch) {
  const int threads = at::get_num_threads();
  const at::Tensor x = values({3, 150, 210});
  at::set_num_threads(1);
  const at::Tensor gram = products.gram(x), product = products.product(gram, x);
  at::set_num_threads(2);
  EXPECT_TRUE(test::same_bits(products.gram(x), gram));
  EXPECT_TRUE(test::same_bits(products.product(gram, x), product));
  const at::Tensor one = x.slice(0, 1, 2).contiguous();
  EXPECT_TRUE(test::same_bits(products.gram(one)[0], gram[1]));
  at::set_num_threads(threads);
}

TEST_P(MatrixProducts, AddsToTheDiagonal) {
  const at::Tensor r = values({2, 5, 5});
  // A number that neither bf16 nor f16 can hold.
  expect_close(products.plus_diagonal(r, 7.8926), wide(r) + at::eye(5, at::kDouble) * 7.8926);
}

INSTANTIATE_TEST_SUITE_P(Storages, MatrixProducts, ::testing::Values(at::kFloat, at::kBFloat16, at::kHalf),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

}  // namespace
}  // namespace pacer::optim
