// Newton-Schulz iterations for the orthogonal factor of a matrix: with G = U S V^T they approach U V^T (Jordan et al.
// 2024; Bernstein and Newhouse 2024).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::optim {

// One iteration is X <- a X + (b A + c A^2) X with A = X X^T: every singular value s becomes a s + b s^3 + c s^5.
struct Triple {
  double a = 0, b = 0, c = 0;
  bool operator==(const Triple&) const = default;
};
using Coefficients = std::vector<Triple>;  // one triple per iteration

// Polar Express (Amsel et al. 2025, arXiv 2505.16932), five steps with its safety factor 1.05: a / 1.05, b / 1.05^3,
// c / 1.05^5. Takes singular values from [3e-3, 1] to [0.84, 1.13].
const Coefficients& polar_express();
// The five triples of You (modded-nanogpt): [3e-3, 1] to [0.97, 1.15].
const Coefficients& you();
// (3.4445, -4.7750, 2.0315), the same in each of `steps` iterations, as torch.optim.Muon uses them: [3e-3, 1] to [0.68,
// 1.21] after five.
Coefficients jordan(int64_t steps = 5);

// "polar-express" | "you" | "jordan". Throws Error{usage} listing them.
Coefficients coefficients_of(const std::string& name);

struct NewtonSchulzOptions {
  // direct: as above, all products with the long side of X.
  // gram: the same polynomials on R = X X^T [k, k], whose product Q is multiplied with X once per restart window:
  //   Z = b R + c R^2;  Q <- Z Q + a Q (Z + a I without Q);  R <- (Z + a I) R (Z + a I);  at the end X <- Q X
  // A restart before iteration i means X <- Q X, R <- X X^T, Q dropped: it gives back what rounding has taken from R.
  // automatic: whichever needs fewer operations for the shape, direct for matrices that are nearly square (form_for).
  enum class Form { automatic, direct, gram };
  Form form = Form::automatic;
  Coefficients coefficients = polar_express();
  std::vector<int64_t> restarts = {2};  // of the Gram form, ascending, each in [1, iterations)

  // Element type of X, R, Z and Q between products: f32, bf16 or f16. Sums over a product's inner dimension are always
  // f32. On the CPU f16 means f32 products whose results are rounded to f16: right, and slow.
  at::ScalarType storage = at::kBFloat16;

  // What G is divided by before the first iteration.
  // relative: X = (G / s) / (|G / s| (1 + 1e-7)) with s = max |G|, norms Frobenius. No scale of G shrinks the update.
  // absolute: X = G / (|G| + 1e-7), as other implementations have it: a matrix of norm 1e-7 becomes half of its factor.
  enum class Normalisation { relative, absolute };
  Normalisation normalisation = Normalisation::relative;

  bool operator==(const NewtonSchulzOptions&) const = default;
};

// Throws Error{usage}: no triple or one that is not finite, restarts out of order or out of range, another storage, the
// Gram form in bf16 without a restart (R loses its small eigenvalues and the iteration diverges).
void check_newton_schulz(const NewtonSchulzOptions& options);

// The form that a matrix of this shape is computed in: options.form, or the cheaper one.
NewtonSchulzOptions::Form form_for(int64_t rows, int64_t columns, const NewtonSchulzOptions& options);

// The orthogonal factor of each matrix, approximately: singular values as the coefficients say, singular vectors kept.
//
//   matrices  [m, n] or [B, m, n] f32, bf16 or f16; any sizes, also none
//   returns   the same shape and dtype; zero for zero
//
// Works on the transpose when m > n. On the CPU the bits of a matrix depend neither on the others of a batch nor on the
// number of threads. Throws Error{data} when an element is not finite; `name` is what the message calls the matrix.
at::Tensor newton_schulz(const at::Tensor& matrices, const NewtonSchulzOptions& options, const std::string& name = {});

// Floating-point operations of the products for one matrix, with symmetric results counted as their triangle.
double newton_schulz_flops(int64_t rows, int64_t columns, const NewtonSchulzOptions& options);

}  // namespace pacer::optim
