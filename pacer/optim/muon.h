// Muon: momentum whose matrices are orthogonalised before they are applied (Jordan et al. 2024), with decoupled decay
// and the scale that lets it share AdamW's learning rate (Liu et al. 2025, arXiv 2502.16982).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/optim/newton_schulz.h"

namespace pacer::optim {

// How a gradient g enters the momentum, and the update u that is orthogonalised, without | with Nesterov's look ahead:
//   sum      buf <- mu buf + g               u = buf | g + mu buf
//   average  buf <- mu buf + (1 - mu) g      u = buf | (1 - mu) g + mu buf     (torch.optim.Muon)
enum class MomentumRule { sum, average };

// What an m x n orthogonal update is multiplied with besides the learning rate:
//   match_rms_adamw  0.2 sqrt(max(m, n)), the root mean square of AdamW's updates
//   original         sqrt(max(1, m / n))
//   none             1
enum class UpdateScale { match_rms_adamw, original, none };
double update_scale(UpdateScale scale, int64_t rows, int64_t columns);
UpdateScale parse_update_scale(const std::string& name);  // the names above; throws Error{usage}

struct MuonOptions {
  double momentum = 0.95;  // mu, [0, 1)
  bool nesterov = true;
  MomentumRule rule = MomentumRule::sum;
  UpdateScale scale = UpdateScale::match_rms_adamw;
  at::ScalarType momentum_dtype = at::kFloat;  // of the state from the first step on: f32 or bf16
  bool batch_matrices = true;                  // where that is faster: matrices of one shape in one batch
  NewtonSchulzOptions newton_schulz;
};

// As torch.optim.Muon computes: average momentum, (3.4445, -4.7750, 2.0315), the direct form in bf16, absolute epsilon,
// and its rule `original` or `match_rms_adamw`. Its default decay is 0.1.
MuonOptions torch_muon(UpdateScale scale = UpdateScale::original, int64_t iterations = 5);

// Which matrices a parameter consists of. Without either: one matrix [d0, product of the other dimensions]; a vector is
// n x 1. Each matrix is orthogonalised by itself and has a scale of its own.
struct MatrixLayout {
  bool stacked = false;             // [E, m, ...] is E matrices [m, ...]: experts, heads
  std::vector<int64_t> row_blocks;  // rows of each matrix one after the other, for example of a fused q, k and v
  bool operator==(const MatrixLayout&) const = default;
};

struct MatrixBlock {
  int64_t first_row, rows;
};

// Rows and columns of a parameter and its matrices from top to bottom.
struct MatrixView {
  int64_t rows, columns;
  std::vector<MatrixBlock> blocks;
};
// Throws Error{usage} with `name` for a scalar, for row blocks that do not add up to the rows, or stacked with fewer
// than three dimensions.
MatrixView matrix_view(const std::string& name, at::IntArrayRef sizes, const MatrixLayout& layout);

// One parameter of an update.
//   weight    f32 or bf16, contiguous: the master, changed in place
//   gradient  the same shape, f32, bf16 or f16; undefined: weight, momentum and decay are left alone
//   momentum  options.momentum_dtype, [rows, columns] of its matrix view or the weight's shape, contiguous, changed in
//             place; zero before the first step
struct MuonParameter {
  std::string name;  // for messages
  at::Tensor weight, gradient, momentum;
  double rate = 0;            // learning rate of this step
  double weight_decay = 0;    // decoupled and by the unscaled rate
  double gradient_scale = 1;  // clip coefficient
  MatrixLayout layout{};
};

// The momentum of a parameter before its first step.
at::Tensor zero_momentum(const at::Tensor& weight, const MuonOptions& options);

// One step of every parameter: with g = gradient_scale * gradient, u as MomentumRule says and each matrix by itself
//
//   weight *= 1 - rate * weight_decay;  weight -= rate * update_scale * newton_schulz(u)
//
// All arithmetic outside of the iteration is f32 and rounded once into bf16 weights or momentum. On the CPU, and
// elsewhere without batch_matrices, the bits of a parameter depend on its own arguments alone, not on the others in the
// list nor (on the CPU) on threads.
//
// A gradient that is not finite, or so large that the momentum would overflow, throws Error{data} with the parameter's
// name, and nothing has been changed in any of them. Throws Error{bug} for dtypes and shapes, Error{usage} for options.
void muon_update(const std::vector<MuonParameter>& parameters, const MuonOptions& options);

// Throws Error{usage} for options out of their range.
void check_muon(const MuonOptions& options);

}  // namespace pacer::optim
