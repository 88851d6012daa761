#include "pacer/optim/optimizer.h"

#include <algorithm>
#include <utility>

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"

namespace pacer::optim {
namespace {

OptimizerOptions adamw_for_all(const AdamWOptions& adamw, const std::vector<RateRule>& rules) {
  OptimizerOptions options;
  options.adamw = adamw;
  for (const auto& [pattern, rate] : rules) {
    GroupRule rule;
    rule.pattern = pattern, rule.rate = rate;
    options.routes.rules.push_back(std::move(rule));
  }
  return options;
}

[[noreturn]] void not_ours(const std::string& what) {
  throw Error(ErrorKind::format, "optimizer state: " + what,
              "it belongs to another draft or to other optimizer settings");
}

}  // namespace

Optimizer::Optimizer(const std::map<std::string, at::Tensor>& parameters, const AdamWOptions& options,
                     const std::vector<RateRule>& rules)
    : Optimizer(parameters, adamw_for_all(options, rules)) {}

Optimizer::Optimizer(const std::map<std::string, at::Tensor>& parameters, const OptimizerOptions& options)
    : options_(options) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const auto& [name, weight] : parameters) shapes.emplace_back(name, weight.sizes().vec());
  check_muon(options.muon);
  routed_ = route_parameters(shapes, options.routes);
  for (const RoutedParameter& routed : routed_) {
    const at::Tensor& weight = parameters.at(routed.name);
    if (weight.scalar_type() != at::kFloat || !weight.is_contiguous()) {
      throw Error(ErrorKind::bug, "Optimizer: the master of " + routed.name + " is not contiguous f32");
    }
    Entry entry;
    entry.weight = weight;
    if (routed.route == Route::muon) {
      entry.first = zero_momentum(weight, options.muon);
    } else {
      entry.first = at::zeros_like(weight.detach()), entry.second = at::zeros_like(weight.detach());
    }
    entry.counter = at::zeros({1}, at::kLong);
    entries_.push_back(std::move(entry));
  }
}

std::map<std::string, at::Tensor> Optimizer::gradients() const {
  std::map<std::string, at::Tensor> gradients;
  for (size_t i = 0; i < entries_.size(); ++i) gradients[routed_[i].name] = entries_[i].weight.grad();
  return gradients;
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  // Muon first: it is the one that can refuse, and then nothing has changed.
  std::vector<MuonParameter> matrices;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const RoutedParameter& routed = routed_[i];
    if (routed.route != Route::muon || !entries_[i].weight.grad().defined()) continue;
    MuonParameter matrix;
    matrix.name = routed.name;
    matrix.weight = entries_[i].weight.detach();  // same storage, outside of autograd
    matrix.gradient = entries_[i].weight.grad();
    matrix.momentum = entries_[i].first;
    matrix.rate = learning_rate * options_.muon_rate * routed.rate;
    matrix.weight_decay = routed.weight_decay.value_or(options_.muon_weight_decay);
    matrix.gradient_scale = gradient_scale;
    matrix.layout = routed.layout;
    matrices.push_back(std::move(matrix));
  }
  muon_update(matrices, options_.muon);
  ++steps_;
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    const at::Tensor& gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    const int64_t own = ++*entry.counter.mutable_data_ptr<int64_t>();
    if (routed_[i].route == Route::muon) continue;
    AdamWOptions adamw = options_.adamw;
    adamw.weight_decay = routed_[i].weight_decay.value_or(adamw.weight_decay);
    at::Tensor weight = entry.weight.detach();
    adamw_update(weight, gradient, gradient_scale, entry.first, entry.second, own, learning_rate * routed_[i].rate,
                 adamw);
  }
}

void Optimizer::clear_gradients() {
  for (Entry& entry : entries_) {
    // Zeroed in place: the memory is needed again in a moment, and a fixed address keeps the peak where it was.
    if (entry.weight.grad().defined()) entry.weight.mutable_grad().zero_();
  }
}

std::map<std::string, at::Tensor> Optimizer::state() const {
  std::map<std::string, at::Tensor> state;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const std::string& name = routed_[i].name;
    if (routed_[i].route == Route::muon) {
      state[name + ".momentum_buffer"] = entries_[i].first;
    } else {
      state[name + ".exp_avg"] = entries_[i].first;
      state[name + ".exp_avg_sq"] = entries_[i].second;
    }
    state[name + ".step"] = entries_[i].counter;
  }
  return state;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& state, int64_t steps) {
  auto own = this->state();
  const bool counted = std::ranges::any_of(state, [](const auto& entry) { return entry.first.ends_with(".step"); });
  if (!counted) std::erase_if(own, [](const auto& entry) { return entry.first.ends_with(".step"); });
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) not_ours("'" + name + "' is missing");
    if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != tensor.scalar_type()) {
      not_ours("'" + name + "' is " + c10::str(found->second.scalar_type(), found->second.sizes()) + ", expected " +
               c10::str(tensor.scalar_type(), tensor.sizes()));
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!own.contains(name)) not_ours("'" + name + "' belongs to no parameter");
  }
  for (const auto& [name, tensor] : own) tensor.copy_(state.at(name));
  if (!counted) {
    for (Entry& entry : entries_) entry.counter.fill_(steps);
  }
  steps_ = steps;
}

}  // namespace pacer::optim
