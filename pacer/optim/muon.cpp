#include "pacer/optim/muon.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/optim/kernels.h"

namespace pacer::optim {
namespace {

constexpr int64_t kGrain = 1 << 15;  // below this a second thread costs more than it saves

// buf <- keep buf + add g;  u = gradient_share g + momentum_share buf
MomentumScalars momentum_scalars(const MuonOptions& options, double gradient_scale) {
  const double mu = options.momentum, add = options.rule == MomentumRule::sum ? 1.0 : 1.0 - mu;
  return {.gradient_scale = static_cast<float>(gradient_scale),
          .keep = static_cast<float>(mu),
          .add = static_cast<float>(add),
          .gradient_share = static_cast<float>(options.nesterov ? add : 0.0),
          .momentum_share = static_cast<float>(options.nesterov ? mu : 1.0)};
}

double largest_magnitude(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  if (!device::in_host_memory(tensor) || tensor.scalar_type() != at::kFloat || !tensor.is_contiguous()) {
    return tensor.abs().amax().item<double>();
  }
  return largest_magnitude_of(tensor.const_data_ptr<float>(), tensor.numel());
}

void check_tensors(const MuonParameter& p, const MuonOptions& options) {
  const auto fail = [&](const char* what) { throw Error(ErrorKind::bug, "muon_update: " + p.name + ": " + what); };
  const auto is_master = [](const at::Tensor& t) {
    return (t.scalar_type() == at::kFloat || t.scalar_type() == at::kBFloat16) && t.is_contiguous();
  };
  if (!p.weight.defined() || !is_master(p.weight)) fail("the weight is not contiguous f32 or bf16");
  if (p.gradient.sizes() != p.weight.sizes()) fail("the gradient has another shape than the weight");
  if (p.gradient.device() != p.weight.device()) fail("the gradient is on another device than the weight");
  if (!at::isFloatingType(p.gradient.scalar_type())) fail("the gradient is not a floating-point tensor");
  if (!p.momentum.defined() || p.momentum.scalar_type() != options.momentum_dtype || !p.momentum.is_contiguous() ||
      p.momentum.numel() != p.weight.numel() || p.momentum.device() != p.weight.device()) {
    fail("the momentum is not a contiguous tensor of the declared dtype with the weight's elements");
  }
}

void check_finite(const MuonParameter& p, const MuonOptions& options) {
  const double gradient = largest_magnitude(p.gradient) * std::abs(p.gradient_scale);
  const double sum = gradient + options.momentum * largest_magnitude(p.momentum);
  if (gradient + sum < std::numeric_limits<float>::max()) return;  // false for not-a-number
  throw Error(ErrorKind::data,
              p.name + ": the gradient " +
                  (std::isfinite(gradient) ? "is too large for the momentum" : "holds values that are not finite"),
              "nothing was changed; lower the learning rate or look at the batch that gave this gradient");
}

// Changes the momentum and returns u, f32 [rows, columns].
at::Tensor momentum_step(const MuonParameter& p, const MatrixView& view, const MuonOptions& options) {
  const MomentumScalars scalars = momentum_scalars(options, p.gradient_scale);
  const at::Tensor gradient = p.gradient.detach().to(at::kFloat).contiguous();
  at::Tensor momentum = p.momentum.to(at::kFloat);  // itself when it is f32
  at::Tensor update = at::empty({view.rows, view.columns}, gradient.options());
  if (device::in_host_memory(update)) {
    const float* g = gradient.const_data_ptr<float>();
    float* buf = momentum.mutable_data_ptr<float>();
    float* u = update.mutable_data_ptr<float>();
    at::parallel_for(0, update.numel(), kGrain, [&](int64_t begin, int64_t end) {
      momentum_elements(buf + begin, g + begin, u + begin, end - begin, scalars);
    });
  } else {
    const at::Tensor scaled = gradient * scalars.gradient_scale;
    momentum.mul_(scalars.keep).add_(scaled.view_as(momentum), scalars.add);
    update.copy_((scaled * scalars.gradient_share).view_as(update))
        .add_(momentum.view_as(update), scalars.momentum_share);
  }
  if (options.momentum_dtype != at::kFloat) at::Tensor(p.momentum).copy_(momentum);
  return update;
}

// weight <- decay weight - step o, for some rows of the parameter.
void apply(at::Tensor weight, const at::Tensor& o, double decay, double step) {
  if (!device::in_host_memory(weight)) {
    weight.mul_(decay).sub_(o.to(weight.scalar_type()), step);
    return;
  }
  at::Tensor wide = weight.to(at::kFloat);
  float* w = wide.mutable_data_ptr<float>();
  const float* from = o.const_data_ptr<float>();
  at::parallel_for(0, wide.numel(), kGrain, [&](int64_t begin, int64_t end) {
    decayed_step(w + begin, from + begin, end - begin, static_cast<float>(decay), static_cast<float>(step));
  });
  if (weight.scalar_type() != at::kFloat) weight.copy_(wide);
}

struct Block {
  const MuonParameter* parameter;
  at::Tensor weight;  // [rows, columns], a view
  at::Tensor update;  // f32
};

void apply_block(const Block& block, const at::Tensor& o, const MuonOptions& options) {
  const MuonParameter& p = *block.parameter;
  apply(block.weight, o, 1.0 - p.rate * p.weight_decay, p.rate * update_scale(options.scale, o.size(0), o.size(1)));
}

// Matrices of one shape.
void iterate(const std::vector<Block>& blocks, const MuonOptions& options) {
  if (blocks.size() == 1 || !options.batch_matrices || device::in_host_memory(blocks.front().weight)) {
    // On the CPU a batch computes its matrices one by one as well, and this way only one of them is in memory.
    for (const Block& block : blocks) {
      apply_block(block, newton_schulz(block.update, options.newton_schulz, block.parameter->name), options);
    }
    return;
  }
  std::vector<at::Tensor> updates;
  for (const Block& block : blocks) updates.push_back(block.update);
  const at::Tensor all = newton_schulz(at::stack(updates), options.newton_schulz, blocks.front().parameter->name);
  for (size_t i = 0; i < blocks.size(); ++i) apply_block(blocks[i], all[static_cast<int64_t>(i)], options);
}

}  // namespace

double update_scale(UpdateScale scale, int64_t rows, int64_t columns) {
  const auto m = static_cast<double>(rows), n = static_cast<double>(columns);
  switch (scale) {
    case UpdateScale::match_rms_adamw:
      return 0.2 * std::sqrt(std::max(m, n));
    case UpdateScale::original:
      return std::sqrt(std::max(1.0, m / n));
    case UpdateScale::none:
      break;
  }
  return 1.0;
}

UpdateScale parse_update_scale(const std::string& name) {
  if (name == "match_rms_adamw") return UpdateScale::match_rms_adamw;
  if (name == "original") return UpdateScale::original;
  if (name == "none") return UpdateScale::none;
  throw Error(ErrorKind::usage, "update scale '" + name + "', allowed: match_rms_adamw, original, none");
}

MuonOptions torch_muon(UpdateScale scale, int64_t iterations) {
  MuonOptions options;
  options.rule = MomentumRule::average;
  options.scale = scale;
  options.newton_schulz = {.form = NewtonSchulzOptions::Form::direct,
                           .coefficients = jordan(iterations),
                           .restarts = {},
                           .storage = at::kBFloat16,
                           .normalisation = NewtonSchulzOptions::Normalisation::absolute};
  return options;
}

void check_muon(const MuonOptions& options) {
  check_newton_schulz(options.newton_schulz);
  if (!(options.momentum >= 0 && options.momentum < 1)) {
    throw Error(ErrorKind::usage, "Muon: momentum " + std::to_string(options.momentum) + ", allowed: 0 to below 1");
  }
  if (options.momentum_dtype != at::kFloat && options.momentum_dtype != at::kBFloat16) {
    throw Error(ErrorKind::usage, c10::str("Muon: momentum in ", options.momentum_dtype, ", allowed: f32, bf16"));
  }
}

MatrixView matrix_view(const std::string& name, at::IntArrayRef sizes, const MatrixLayout& layout) {
  const auto fail = [&](const std::string& what, const std::string& hint) {
    throw Error(ErrorKind::usage, name + " " + c10::str(sizes) + ": " + what, hint);
  };
  if (sizes.empty()) fail("a scalar cannot take the route muon", "give it the route adamw");
  if (layout.stacked && sizes.size() < 3) {
    fail("stacked matrices need at least three dimensions", "one matrix per entry of the first dimension");
  }
  const size_t leading = layout.stacked ? 2 : 1;
  int64_t rows = 1, columns = 1;
  for (size_t i = 0; i < sizes.size(); ++i) (i < leading ? rows : columns) *= sizes[i];
  MatrixView view{rows, columns, {}};
  const int64_t stack = layout.stacked ? sizes[0] : 1, height = layout.stacked ? sizes[1] : rows;
  const std::vector<int64_t> own = layout.row_blocks.empty() ? std::vector<int64_t>{height} : layout.row_blocks;
  int64_t sum = 0;
  for (const int64_t block : own) sum += block < 1 ? height + 1 : block;
  if (sum != height && !(height == 0 && layout.row_blocks.empty())) {
    fail("row blocks " + c10::str(own) + " do not add up to its " + std::to_string(height) + " rows",
         "list the rows of every matrix, from the first to the last");
  }
  for (int64_t i = 0, row = 0; i < stack; ++i) {
    for (const int64_t block : own) {
      view.blocks.push_back({row, block});
      row += block;
    }
  }
  return view;
}

at::Tensor zero_momentum(const at::Tensor& weight, const MuonOptions& options) {
  return at::zeros(weight.sizes(), weight.options().dtype(options.momentum_dtype).requires_grad(false));
}

void muon_update(const std::vector<MuonParameter>& parameters, const MuonOptions& options) {
  check_muon(options);
  std::vector<std::pair<const MuonParameter*, MatrixView>> live;
  for (const MuonParameter& p : parameters) {
    if (!p.gradient.defined()) continue;
    check_tensors(p, options);
    live.emplace_back(&p, matrix_view(p.name, p.weight.sizes(), p.layout));
  }
  for (const auto& [p, view] : live) check_finite(*p, options);

  std::map<std::pair<int64_t, int64_t>, std::vector<Block>> shapes;
  for (const auto& [p, view] : live) {
    const at::Tensor update = momentum_step(*p, view, options);
    const at::Tensor weight = p->weight.detach().view({view.rows, view.columns});
    for (const auto& [first, rows] : view.blocks) {
      const Block block{p, weight.narrow(0, first, rows), update.narrow(0, first, rows)};
      if (!options.batch_matrices || device::in_host_memory(update)) {
        iterate({block}, options);  // at once: the update of one parameter in memory, not of all
      } else {
        shapes[{rows, view.columns}].push_back(block);
      }
    }
  }
  for (const auto& [shape, blocks] : shapes) iterate(blocks, options);
}

}  // namespace pacer::optim
