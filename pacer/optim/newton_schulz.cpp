#include "pacer/optim/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>

#include "pacer/base/error.h"
#include "pacer/optim/matrix_products.h"

namespace pacer::optim {
namespace {

constexpr double kEpsilon = 1e-7;

Coefficients with_safety(Coefficients coefficients, double safety) {
  for (Triple& t : coefficients) t.a /= safety, t.b /= std::pow(safety, 3), t.c /= std::pow(safety, 5);
  return coefficients;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorKind::usage, "Newton-Schulz: " + what, hint);
}

// x: [B, k, n] f32. Norm 1, or a little less; zero stays zero.
at::Tensor normalised(const at::Tensor& x, NewtonSchulzOptions::Normalisation normalisation, const std::string& name) {
  const at::Tensor largest = x.abs().amax({1, 2}, /*keepdim=*/true);
  if (!at::isfinite(largest).all().item<bool>()) {
    throw Error(
        ErrorKind::data,
        (name.empty() ? "Newton-Schulz: the matrix" : name + ": the update") + " holds values that are not finite",
        "nothing was changed; lower the learning rate or look at the batch that gave this gradient");
  }
  const auto norm_of = [](const at::Tensor& t) { return t.square().sum({1, 2}, true).sqrt(); };
  if (normalisation == NewtonSchulzOptions::Normalisation::absolute) return x / (norm_of(x) + kEpsilon);
  const at::Tensor scaled = x / at::where(largest == 0, 1.0, largest);  // largest entry 1: the norm cannot overflow
  const at::Tensor norm = norm_of(scaled);
  return scaled / (at::where(norm == 0, 1.0, norm) * (1.0 + kEpsilon));
}

at::Tensor direct(const Products& products, at::Tensor x, const NewtonSchulzOptions& options) {
  for (const Triple& t : options.coefficients) {
    const at::Tensor a = products.gram(x);
    const at::Tensor p = products.symmetric(a, a, t.c, a, t.b);
    x = products.product(p, x, x, t.a);
  }
  return x;
}

at::Tensor gram(const Products& products, at::Tensor x, const NewtonSchulzOptions& options) {
  const auto is_restart = [&](size_t i) {
    return std::ranges::find(options.restarts, static_cast<int64_t>(i)) != options.restarts.end();
  };
  const size_t iterations = options.coefficients.size();
  at::Tensor q, r = products.gram(x);
  for (size_t i = 0; i < iterations; ++i) {
    const Triple& t = options.coefficients[i];
    if (is_restart(i)) {
      x = products.product(q, x);
      r = products.gram(x);
      q = at::Tensor();
    }
    // All of these are polynomials of one symmetric matrix: they commute, and their products are symmetric.
    const at::Tensor z = products.symmetric(r, r, t.c, r, t.b);
    q = q.defined() ? products.symmetric(z, q, 1, q, t.a) : products.plus_diagonal(z, t.a);
    if (i + 1 < iterations && !is_restart(i + 1)) {
      const at::Tensor half = products.symmetric(r, z, 1, r, t.a);
      r = products.symmetric(z, half, 1, half, t.a);
    }
  }
  return products.product(q, x);
}

}  // namespace

const Coefficients& polar_express() {
  static const Coefficients coefficients = with_safety({{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                                        {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                                        {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                                        {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                                        {2.300652019954817, -1.6689039845749493, 0.4188073119525673}},
                                                       1.05);
  return coefficients;
}

const Coefficients& you() {
  static const Coefficients coefficients = {{4.0848, -6.8946, 2.9270},
                                            {3.9505, -6.3029, 2.6377},
                                            {3.7418, -5.5913, 2.3037},
                                            {2.8769, -3.1427, 1.2046},
                                            {2.8366, -3.0525, 1.2012}};
  return coefficients;
}

Coefficients jordan(int64_t steps) { return Coefficients(static_cast<size_t>(steps), {3.4445, -4.7750, 2.0315}); }

Coefficients coefficients_of(const std::string& name) {
  if (name == "polar-express") return polar_express();
  if (name == "you") return you();
  if (name == "jordan") return jordan();
  refuse("coefficients '" + name + "' are not known; allowed: polar-express, you, jordan",
         "own triples are given as a list of [a, b, c], one per iteration");
}

void check_newton_schulz(const NewtonSchulzOptions& options) {
  const auto iterations = static_cast<int64_t>(options.coefficients.size());
  if (iterations == 0) refuse("no coefficients, at least one triple is needed", {});
  for (const Triple& t : options.coefficients) {
    if (std::isfinite(t.a) && std::isfinite(t.b) && std::isfinite(t.c)) continue;
    refuse("a coefficient is not finite", {});
  }
  int64_t last = 0;
  for (const int64_t restart : options.restarts) {
    if (restart <= last || restart >= iterations) {
      refuse("restart before iteration " + std::to_string(restart) + ", allowed are ascending numbers from 1 to " +
                 std::to_string(iterations - 1),
             "iterations count from 0 and there are as many as triples");
    }
    last = restart;
  }
  const bool known = options.storage == at::kFloat || options.storage == at::kBFloat16 || options.storage == at::kHalf;
  if (!known) refuse(c10::str("storage in ", options.storage, ", allowed: f32, bf16, f16"), {});
  if (options.form == NewtonSchulzOptions::Form::gram && options.storage == at::kBFloat16 && options.restarts.empty()) {
    refuse("the Gram form in bf16 without a restart diverges on badly conditioned matrices",
           "set restarts to [2], or store in f32, or use the direct form");
  }
}

at::Tensor newton_schulz(const at::Tensor& matrices, const NewtonSchulzOptions& options, const std::string& name) {
  check_newton_schulz(options);
  if (matrices.dim() != 2 && matrices.dim() != 3) {
    throw Error(ErrorKind::bug,
                c10::str("newton_schulz: ", matrices.dim(), " dimensions, expected [m, n] or [B, m, n]"));
  }
  if (matrices.numel() == 0) return at::empty_like(matrices);
  const bool batch = matrices.dim() == 3;
  at::Tensor x = (batch ? matrices : matrices.unsqueeze(0)).detach().to(at::kFloat);
  const bool tall = x.size(1) > x.size(2);
  if (tall) x = x.transpose(1, 2);
  const Products products(options.storage, x.device());
  x = products.store(normalised(x.contiguous(), options.normalisation, name));
  x = options.form == NewtonSchulzOptions::Form::direct ? direct(products, x, options) : gram(products, x, options);
  if (tall) x = x.transpose(1, 2);
  return (batch ? x : x.squeeze(0)).to(matrices.scalar_type()).contiguous();
}

}  // namespace pacer::optim
