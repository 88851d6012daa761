#include "pacer/optim/newton_schulz.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_svdvals.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::optim {
namespace {

using Form = NewtonSchulzOptions::Form;
using Normalisation = NewtonSchulzOptions::Normalisation;

// The same iteration as the formula of the header says it, in f64 and without any of its code.
at::Tensor naive(const at::Tensor& matrix, const Coefficients& coefficients) {
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor x = (tall ? matrix.t() : matrix).to(at::kDouble);
  const at::Tensor norm = x.square().sum().sqrt();
  x = norm.item<double>() == 0 ? x : x / norm;
  for (const auto& [a, b, c] : coefficients) {
    const at::Tensor gram = x.mm(x.t());
    x = x * a + (gram * b + gram.mm(gram) * c).mm(x);
  }
  return tall ? x.t() : x;
}

NewtonSchulzOptions options(Form form, at::ScalarType storage, std::vector<int64_t> restarts = {}) {
  NewtonSchulzOptions options;
  options.form = form;
  options.storage = storage;
  options.restarts = std::move(restarts);
  return options;
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor singular_values(const at::Tensor& matrix) { return at::linalg_svdvals(matrix.to(at::kDouble)); }

const std::vector<std::string> kSets = {"you", "polar_express_safe", "classic"};

Coefficients set_of(const nlohmann::json& golden, const std::string& name) {
  Coefficients coefficients;
  for (const auto& t : golden["coefficients"][name]) coefficients.push_back({t[0], t[1], t[2]});
  return coefficients;
}

class GoldenNewtonSchulz : public ::testing::TestWithParam<int> {
 protected:
  std::string name(const std::string& rest) const { return std::to_string(GetParam()) + "." + rest; }
  test::GoldenTensors golden{"muon/newton_schulz.safetensors"};
  nlohmann::json facts = test::golden_json("muon/newton_schulz.json");
};

TEST_P(GoldenNewtonSchulz, BothFormsInF32MatchTheExactResult) {
  for (const std::string& set : kSets) {
    for (const Form form : {Form::direct, Form::gram}) {
      for (const Normalisation normalisation : {Normalisation::relative, Normalisation::absolute}) {
        NewtonSchulzOptions wanted = options(form, at::kFloat, {2});
        wanted.coefficients = set_of(facts, set);
        wanted.normalisation = normalisation;
        const at::Tensor result = newton_schulz(golden[name("input")], wanted);
        EXPECT_TRUE(test::close_l2(result, golden[name(set + ".exact_f64")], 1e-4)) << set;
      }
    }
  }
}

// The stored half-precision results round in their own places; both are that far from the exact result and no further.
TEST_P(GoldenNewtonSchulz, F16StaysAsCloseAsTheReference) {
  const auto& entry = facts[std::to_string(GetParam())];
  const at::Tensor exact = golden[name("polar_express_safe.exact_f64")];
  const at::Tensor direct = newton_schulz(golden[name("input")], options(Form::direct, at::kHalf));
  const at::Tensor gram = newton_schulz(golden[name("input")], options(Form::gram, at::kHalf, {2}));
  EXPECT_TRUE(test::close_l2(direct, exact, 2 * entry["rel_err_direct_f16"].get<double>()));
  EXPECT_TRUE(test::close_l2(gram, exact, 2 * entry["rel_err_gram_f16"].get<double>()));
  EXPECT_TRUE(test::close_l2(direct, golden[name("polar_express_safe.direct_f16")],
                             2 * entry["rel_err_direct_f16"].get<double>()));
  EXPECT_TRUE(test::close_l2(gram, golden[name("polar_express_safe.gram_f16_restart2")],
                             2 * entry["rel_err_gram_f16"].get<double>()));
  // It is f16 that was asked for, not f32.
  EXPECT_FALSE(test::close_l2(direct, exact, 1e-5));
}

// The Gram form is a product of small matrices, one per restart window, on the normalised and oriented matrix: the
// recorded ones, applied one behind the other, must give what the first window gives, and then the whole iteration.
TEST(GoldenGramFactors, AppliedInOrderGiveTheResult) {
  const test::GoldenTensors golden("muon/newton_schulz.safetensors");
  const nlohmann::json facts = test::golden_json("muon/newton_schulz.json");
  const nlohmann::json& entry = facts["factors"];
  const at::Tensor input = golden[entry["input"].get<std::string>()];
  ASSERT_TRUE(entry["transposed"].get<bool>() && input.size(0) > input.size(1));
  const at::Tensor normaliser = golden["factors.normalizer"].to(at::kDouble);
  EXPECT_NEAR(normaliser.item<double>(),
              input.to(at::kDouble).square().sum().sqrt().item<double>() + facts["eps"].get<double>(),
              1e-6 * normaliser.item<double>());
  at::Tensor x = input.t().to(at::kDouble) / normaliser;

  NewtonSchulzOptions wanted = options(Form::gram, at::kFloat, {2});
  wanted.normalisation = Normalisation::absolute;
  const Coefficients all = set_of(facts, "polar_express_safe");
  // f16 rounds every element of a factor; this is how far the recorded result as a whole is from the exact one.
  const double bound = 2 * facts["2"]["rel_err_gram_f16"].get<double>();
  const std::vector<size_t> windows = {2, all.size()};
  ASSERT_EQ(entry["count"].get<size_t>(), windows.size());
  for (size_t i = 0; i < windows.size(); ++i) {
    x = golden["factors." + std::to_string(i)].to(at::kDouble).mm(x);
    wanted.coefficients.assign(all.begin(), all.begin() + static_cast<ptrdiff_t>(windows[i]));
    wanted.restarts = i == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{2};
    EXPECT_TRUE(test::close_l2(newton_schulz(input, wanted).t(), x, bound)) << "after window " << i;
  }
}

TEST_P(GoldenNewtonSchulz, Bf16IsUsable) {
  const at::Tensor exact = golden[name("polar_express_safe.exact_f64")];
  for (const Form form : {Form::direct, Form::gram}) {
    const at::Tensor result = newton_schulz(golden[name("input")], options(form, at::kBFloat16, {2}));
    if (GetParam() <= 4) {
      EXPECT_TRUE(test::close_l2(result, exact, 5e-2));
    }
    const double largest = singular_values(result).max().item<double>();
    EXPECT_TRUE(std::isfinite(largest) && largest <= 1.3) << largest;
  }
}

// The bf16 direct form with the coefficients of torch.optim.Muon is as close to the exact result as torch's own.
TEST_P(GoldenNewtonSchulz, TheTorchFormInBf16) {
  NewtonSchulzOptions torch = options(Form::direct, at::kBFloat16);
  torch.coefficients = jordan();
  torch.normalisation = Normalisation::absolute;
  const at::Tensor result = newton_schulz(golden[name("input")], torch);
  const double error = facts[std::to_string(GetParam())]["rel_err_torch_bf16"].get<double>();
  EXPECT_TRUE(test::close_l2(result, golden[name("classic.exact_f64")], 1.5 * error));
  EXPECT_TRUE(test::close_l2(result, golden[name("classic.torch_bf16")], 2 * error));
}

INSTANTIATE_TEST_SUITE_P(Inputs, GoldenNewtonSchulz, ::testing::Range(0, 7));

TEST(NewtonSchulzCoefficients, AreThePublishedOnes) {
  const auto facts = test::golden_json("muon/newton_schulz.json");
  EXPECT_EQ(you(), set_of(facts, "you"));
  EXPECT_EQ(jordan(), set_of(facts, "classic"));
  const Coefficients safe = set_of(facts, "polar_express_safe");
  ASSERT_EQ(polar_express().size(), safe.size());
  for (size_t i = 0; i < safe.size(); ++i) {
    EXPECT_NEAR(polar_express()[i].a, safe[i].a, 1e-12);
    EXPECT_NEAR(polar_express()[i].b, safe[i].b, 1e-12);
    EXPECT_NEAR(polar_express()[i].c, safe[i].c, 1e-12);
  }
}

// Range of the composed scalar map s -> a s + b s^3 + c s^5 on [least, 1].
std::pair<double, double> range(const Coefficients& coefficients, double least) {
  double low = 1e9, high = 0;
  constexpr int kPoints = 200'000;
  for (int i = 0; i <= kPoints; ++i) {
    double s = least * std::pow(1 / least, static_cast<double>(i) / kPoints);
    for (const auto& [a, b, c] : coefficients) s = a * s + b * s * s * s + c * s * s * s * s * s;
    low = std::min(low, s), high = std::max(high, s);
  }
  return {low, high};
}

TEST(NewtonSchulzCoefficients, SendSingularValuesWhereTheyShould) {
  struct Row {
    Coefficients coefficients;
    double least, low, high;
  };
  for (const Row& row : {Row{polar_express(), 1e-3, 0.729, 1.124}, Row{polar_express(), 3e-3, 0.846, 1.124},
                         Row{you(), 1e-3, 0.475, 1.145}, Row{you(), 3e-3, 0.978, 1.145}, Row{you(), 1e-2, 0.978, 1.032},
                         Row{jordan(), 1e-3, 0.471, 1.202}, Row{jordan(), 1e-2, 0.682, 1.134}}) {
    const auto [low, high] = range(row.coefficients, row.least);
    EXPECT_NEAR(low, row.low, 6e-4);
    EXPECT_NEAR(high, row.high, 6e-4);
  }
}

TEST(NewtonSchulzCoefficients, AreFoundByName) {
  EXPECT_EQ(coefficients_of("polar-express"), polar_express());
  EXPECT_EQ(coefficients_of("you"), you());
  EXPECT_EQ(coefficients_of("jordan"), jordan(5));
  EXPECT_THROW(coefficients_of("classic"), Error);
}

TEST(NewtonSchulz, TakesOwnTriples) {
  NewtonSchulzOptions cubic = options(Form::gram, at::kFloat);
  cubic.coefficients = Coefficients(3, {1.5, -0.5, 0});  // the classical iteration, which converges from any norm <= 1
  const at::Tensor matrix = at::randn({7, 11});
  EXPECT_TRUE(test::close_l2(newton_schulz(matrix, cubic), naive(matrix, cubic.coefficients), 1e-5));
}

TEST(NewtonSchulz, AnyShape) {
  const std::vector<std::vector<int64_t>> shapes = {{16, 48}, {48, 16}, {1, 9},   {9, 1}, {1, 1},
                                                    {13, 17}, {17, 13}, {31, 31}, {97, 2}};
  for (const auto& shape : shapes) {
    const at::Tensor matrix = at::randn(shape);
    for (const Form form : {Form::direct, Form::gram}) {
      const at::Tensor result = newton_schulz(matrix, options(form, at::kFloat, {2}));
      EXPECT_TRUE(test::close_l2(result, naive(matrix, polar_express()), 1e-4)) << shape[0] << "x" << shape[1];
    }
  }
}

TEST(NewtonSchulz, EmptyAndZeroStayAsTheyAre) {
  for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Form form : {Form::direct, Form::gram}) {
      const NewtonSchulzOptions wanted = options(form, storage, {2});
      EXPECT_EQ(newton_schulz(at::empty({0, 5}), wanted).sizes(), (std::vector<int64_t>{0, 5}));
      EXPECT_EQ(newton_schulz(at::empty({0, 5, 3}), wanted).sizes(), (std::vector<int64_t>{0, 5, 3}));
      EXPECT_TRUE(test::same_bits(newton_schulz(at::zeros({6, 4}), wanted), at::zeros({6, 4})));
    }
  }
  NewtonSchulzOptions absolute = options(Form::direct, at::kFloat);
  absolute.normalisation = Normalisation::absolute;
  EXPECT_TRUE(test::same_bits(newton_schulz(at::zeros({6, 4}), absolute), at::zeros({6, 4})));
}

TEST(NewtonSchulz, AMatrixOfABatchHasTheBitsThatItHasAlone) {
  at::Tensor batch = at::randn({5, 24, 40});
  batch[3].mul_(1e-20);
  batch[4].zero_();
  for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const Form form : {Form::direct, Form::gram}) {
      const NewtonSchulzOptions wanted = options(form, storage, {2});
      const at::Tensor together = newton_schulz(batch, wanted);
      for (int64_t i = 0; i < batch.size(0); ++i) {
        EXPECT_TRUE(test::same_bits(together[i], newton_schulz(batch[i], wanted))) << i;
      }
    }
  }
}

// A batch that is computed in groups: five of 300 x 700 in f32 are two and a rest, on as many threads as there are.
TEST(NewtonSchulz, ALargeBatchHasTheBitsOfItsMatrices) {
  const at::Tensor batch = at::randn({5, 300, 700});
  const int threads = at::get_num_threads();
  for (const int used : {1, 2, 8}) {
    at::set_num_threads(used);
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16}) {
      const NewtonSchulzOptions wanted = options(Form::gram, storage, {2});
      for (const bool inference : {false, true}) {
        const c10::InferenceMode mode(inference);
        const at::Tensor together = newton_schulz(batch, wanted);
        at::set_num_threads(1);
        for (int64_t i = 0; i < batch.size(0); ++i) {
          EXPECT_TRUE(test::same_bits(together[i], newton_schulz(batch[i], wanted))) << i << ", threads " << used;
        }
        at::set_num_threads(used);
      }
    }
  }
  at::set_num_threads(threads);
}

TEST(NewtonSchulz, TheScaleOfTheInputDoesNotMatter) {
  // Factors of eight bits each have an exact product, so the scaled matrix is not another matrix by its rounding.
  const auto eight_bits = [](const at::Tensor& t) { return t.to(at::kBFloat16).to(at::kFloat); };
  const at::Tensor matrix = eight_bits(at::randn({12, 20}));
  for (const Form form : {Form::direct, Form::gram}) {
    for (const at::ScalarType storage : {at::kFloat, at::kBFloat16, at::kHalf}) {
      const NewtonSchulzOptions wanted = options(form, storage, {2});
      const at::Tensor expected = newton_schulz(matrix, wanted);
      for (const float scale : {1e-30f, 1e-12f, 1e-3f, 1e12f, 1e30f}) {
        const at::Tensor scaled = matrix * eight_bits(at::full({}, scale));
        EXPECT_TRUE(test::same_bits(newton_schulz(scaled, wanted), expected)) << scale;
      }
    }
    // With the absolute form a small matrix is not normalised, as the golden results have it.
    NewtonSchulzOptions absolute = options(form, at::kFloat, {2});
    absolute.normalisation = Normalisation::absolute;
    EXPECT_LE(newton_schulz(matrix * 1e-15, absolute).abs().max().item<double>(), 1e-4);
  }
}

TEST(NewtonSchulz, WorksOnTheShortSide) {
  const at::Tensor wide = at::randn({10, 25});
  for (const Form form : {Form::direct, Form::gram}) {
    const NewtonSchulzOptions wanted = options(form, at::kBFloat16, {2});
    EXPECT_TRUE(
        test::same_bits(newton_schulz(wide.t().contiguous(), wanted), newton_schulz(wide, wanted).t().contiguous()));
  }
}

TEST(NewtonSchulz, FormsAgreeAndAreNearlyOrthogonal) {
  const at::Tensor matrix = at::randn({128, 320}).to(at::kBFloat16);
  for (const auto& coefficients : {polar_express(), you()}) {
    NewtonSchulzOptions direct = options(Form::direct, at::kBFloat16), gram = options(Form::gram, at::kBFloat16, {2});
    direct.coefficients = gram.coefficients = coefficients;
    const at::Tensor one = newton_schulz(matrix, direct), other = newton_schulz(matrix, gram);
    EXPECT_EQ(one.scalar_type(), at::kBFloat16);
    EXPECT_LT(largest_difference(one, other), 0.1);
    const at::Tensor x = other.to(at::kFloat);
    EXPECT_LT(largest_difference(x.mm(x.t()), at::eye(128)), 0.15);
  }
}

TEST(NewtonSchulz, SingularValuesOfARandomMatrixEndNearOne) {
  const at::Tensor values = singular_values(newton_schulz(at::randn({576, 1536}), NewtonSchulzOptions{}));
  EXPECT_GE(values.min().item<double>(), 0.80);
  EXPECT_LE(values.max().item<double>(), 1.17);
}

TEST(NewtonSchulz, TakesTheCheaperFormByItself) {
  const NewtonSchulzOptions automatic;
  EXPECT_EQ(form_for(576, 576, automatic), Form::direct);
  EXPECT_EQ(form_for(576, 1536, automatic), Form::gram);
  EXPECT_EQ(form_for(1536, 576, automatic), Form::gram);
  EXPECT_EQ(form_for(576, 576, options(Form::gram, at::kFloat)), Form::gram);
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{20, 21}, {20, 60}}) {
    const at::Tensor matrix = at::randn(shape);
    NewtonSchulzOptions chosen = automatic;
    chosen.form = form_for(shape[0], shape[1], automatic);
    EXPECT_TRUE(test::same_bits(newton_schulz(matrix, automatic), newton_schulz(matrix, chosen)));
  }
}

TEST(NewtonSchulz, CountsTriangles) {
  NewtonSchulzOptions one = options(Form::direct, at::kFloat);
  one.coefficients = {{1.5, -0.5, 0}};
  // X X^T [2 x 5]: 3 results of 5 products and additions; A A: 3 of 2; P X: 10 of 2.
  EXPECT_EQ(newton_schulz_flops(2, 5, one), 2.0 * (3 * 5 + 3 * 2 + 10 * 2));
  one.form = Form::gram;
  EXPECT_EQ(newton_schulz_flops(5, 2, one), 2.0 * (3 * 5 + 3 * 2 + 10 * 2));
  one.coefficients = Coefficients(2, {1.5, -0.5, 0});  // and once Z Q in full and two triangles for the next R
  EXPECT_EQ(newton_schulz_flops(5, 2, one), 2.0 * (3 * 5 + 2 * 3 * 2 + 4 * 2 + 2 * 3 * 2 + 10 * 2));
}

// Why bf16 without a restart is refused: the same iteration in f16, which has three more bits, still holds.
TEST(NewtonSchulz, RefusesWhatWouldDiverge) {
  try {
    newton_schulz(at::randn({4, 4}), options(Form::gram, at::kBFloat16));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(),
                 "Newton-Schulz: the Gram form in bf16 without a restart diverges on badly conditioned matrices");
    EXPECT_FALSE(error.hint().empty());
  }
  EXPECT_NO_THROW(newton_schulz(at::randn({4, 4}), options(Form::gram, at::kHalf)));
  EXPECT_NO_THROW(newton_schulz(at::randn({4, 4}), options(Form::direct, at::kBFloat16)));
}

TEST(NewtonSchulz, RefusesMalformedOptions) {
  const auto refused = [](auto change) {
    NewtonSchulzOptions bad;
    change(bad);
    EXPECT_THROW(check_newton_schulz(bad), Error);
  };
  refused([](auto& o) { o.coefficients.clear(); });
  refused([](auto& o) { o.coefficients[1].b = std::numeric_limits<double>::quiet_NaN(); });
  refused([](auto& o) { o.restarts = {0}; });
  refused([](auto& o) { o.restarts = {5}; });
  refused([](auto& o) { o.restarts = {3, 2}; });
  refused([](auto& o) { o.storage = at::kDouble; });
  EXPECT_NO_THROW(check_newton_schulz(NewtonSchulzOptions{}));
  EXPECT_THROW(newton_schulz(at::randn({3}), NewtonSchulzOptions{}), Error);
}

TEST(NewtonSchulz, NamesTheMatrixThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    at::Tensor matrix = at::randn({4, 6});
    matrix[2][3] = bad;
    try {
      newton_schulz(matrix, NewtonSchulzOptions{}, "layers.3.q_proj.weight");
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find("layers.3.q_proj.weight"), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace pacer::optim
