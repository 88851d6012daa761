// Entries of docs/known_failures.md about Muon.
#include <cmath>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "pacer/optim/muon.h"
#include "pacer/optim/routes.h"
#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

using Form = NewtonSchulzOptions::Form;

// X <- a X + (b A + c A^2) X with A = X X^T, in f64, from the matrix divided by its norm.
at::Tensor naive_factor(const at::Tensor& matrix, const Coefficients& coefficients) {
  at::Tensor x = matrix.to(at::kDouble);
  const double norm = x.square().sum().sqrt().item<double>();
  if (norm > 0) x = x / norm;
  for (const auto& [a, b, c] : coefficients) {
    const at::Tensor gram = x.mm(x.t());
    x = x * a + (gram * b + gram.mm(gram) * c).mm(x);
  }
  return x;
}

TEST(MuonReports, Report48MatricesAtTheEdgeGiveFiniteFactors) {
  at::Tensor huge = at::randn({6, 9});
  huge[2][3] = 1e30;
  const at::Tensor rank_one = at::randn({8, 1}).mm(at::randn({1, 12}));
  for (const at::Tensor& matrix : {at::zeros({0, 8}), at::randn({1, 8}), at::randn({8, 1}), at::randn({1, 1}), huge,
                                   rank_one, at::randn({3, 700}), at::zeros({5, 7}, at::kBFloat16)}) {
    for (const Form form : {Form::automatic, Form::direct, Form::gram}) {
      for (const at::ScalarType storage : {at::kFloat, at::kBFloat16}) {
        NewtonSchulzOptions options;
        options.form = form, options.storage = storage;
        const at::Tensor found = newton_schulz(matrix, options, "w");
        SCOPED_TRACE(std::to_string(matrix.size(0)) + "x" + std::to_string(matrix.size(1)) + toString(storage));
        ASSERT_EQ(found.sizes(), matrix.sizes());
        EXPECT_TRUE(std::isfinite(found.to(at::kDouble).sum().item<double>()));
        if (matrix.abs().sum().item<double>() == 0) {
          EXPECT_TRUE(test::same_bits(found, matrix));
        } else if (storage == at::kFloat) {
          // What f32 rounds in directions without a singular value grows with the iteration as a small one would.
          EXPECT_TRUE(test::close_l2(found, naive_factor(matrix, options.coefficients).to(at::kFloat), 5e-3));
        } else {
          EXPECT_LE(at::linalg_svdvals(found).max().item<double>(), 1.3);
        }
      }
    }
  }
}

// Ten steps of torch.optim.Muon's formulas in f64: lr 1e-3, decay 0.1, momentum 0.95.
at::Tensor naive_steps(const at::Tensor& weight, const std::vector<at::Tensor>& gradients) {
  at::Tensor w = weight.to(at::kDouble), buffer = at::zeros(weight.sizes(), at::kDouble);
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor g = gradient.to(at::kDouble) * 0.05;
    buffer = buffer * 0.95 + g;
    w = w * (1 - 1e-3 * 0.1) - naive_factor(g + buffer * 0.95, jordan(5)) * 1e-3;
  }
  return w;
}

TEST(MuonReports, Report49TheDtypeOfTheIterationIsAnOptionAndF32IsExact) {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{10, 10}, {8, 32}}) {
    const at::Tensor start = at::randn(sizes) * 0.3;
    std::vector<at::Tensor> gradients;
    for (int step = 0; step < 10; ++step) gradients.push_back(at::randn(sizes));
    const at::Tensor expected = naive_steps(start, gradients);
    const auto distance = [&](at::ScalarType storage) {
      MuonOptions options = torch_muon();
      options.newton_schulz.storage = storage;
      MuonParameter p;
      p.name = "w", p.weight = start.clone(), p.momentum = zero_momentum(start, options);
      p.rate = 1e-3, p.weight_decay = 0.1;
      for (const at::Tensor& gradient : gradients) {
        p.gradient = gradient;
        muon_update({p}, options);
      }
      return (p.weight.to(at::kDouble) - expected).abs().max().item<double>();
    };
    EXPECT_LT(distance(at::kFloat), 2e-6);
    EXPECT_GT(distance(at::kBFloat16), 1e-5) << "bf16 is what was asked for, and it shows";
  }
  // A stack of filters is one matrix by its first dimension.
  const MuonOptions options;
  MuonParameter filters, flat;
  filters.name = flat.name = "w", filters.rate = flat.rate = 0.1;
  filters.weight = at::randn({4, 3, 3}), filters.gradient = at::randn({4, 3, 3});
  flat.weight = filters.weight.clone().view({4, 9}), flat.gradient = filters.gradient.view({4, 9});
  filters.momentum = zero_momentum(filters.weight, options), flat.momentum = zero_momentum(flat.weight, options);
  muon_update({filters, flat}, options);
  EXPECT_TRUE(test::same_bits(filters.weight.view({4, 9}), flat.weight));
}

TEST(MuonReports, Report50EachScaleIsItsFormulaAndIsShown) {
  const at::Tensor weight = at::randn({4, 16}), gradient = at::randn({4, 16});
  const auto moved = [&](UpdateScale scale, bool transposed) {
    MuonOptions options;
    options.scale = scale;
    const auto oriented = [&](const at::Tensor& t) { return transposed ? t.t().contiguous() : t.clone(); };
    MuonParameter p;
    p.name = "w", p.weight = oriented(weight), p.gradient = oriented(gradient), p.rate = 0.02;
    p.momentum = zero_momentum(p.weight, options);
    muon_update({p}, options);
    return oriented(p.weight) - weight;
  };
  const at::Tensor plain = moved(UpdateScale::none, false);
  // 4 x 16 and 16 x 4: 0.2 sqrt(max(m, n)) knows no orientation, sqrt(max(1, m / n)) does.
  for (const auto& [scale, wide, tall] : {std::tuple{UpdateScale::match_rms_adamw, 0.2 * 4, 0.2 * 4},
                                          {UpdateScale::original, 1.0, 2.0},
                                          {UpdateScale::none, 1.0, 1.0}}) {
    EXPECT_TRUE(test::close(moved(scale, false), plain * wide, 1e-6, 1e-5));
    EXPECT_TRUE(test::close(moved(scale, true), plain * tall, 1e-6, 1e-5));
  }
  RouteOptions routes;
  routes.matrix = Route::muon;
  const auto routed = route_parameters({{"wide", {4, 16}}, {"tall", {16, 4}}}, routes);
  const auto lines = route_table(routed, UpdateScale::original);
  EXPECT_NE(lines[0].find("scale 1.000"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("scale 2.000"), std::string::npos) << lines[1];
  EXPECT_NE(route_table(routed, UpdateScale::match_rms_adamw)[1].find("scale 0.800"), std::string::npos);
}

}  // namespace
}  // namespace pacer::optim
