#include "pacer/optim/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"

namespace pacer::optim {

bool matches(const std::string& pattern, const std::string& name) {
  size_t p = 0, n = 0, star = std::string::npos, mark = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, mark = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1, n = ++mark;  // let the last star swallow one more character
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::map<std::string, double> rates_by_name(const std::vector<std::string>& names, const std::vector<RateRule>& rules) {
  std::map<std::string, double> rates;
  std::vector<bool> used(rules.size(), false);
  for (const std::string& name : names) {
    double& rate = rates[name] = 1.0;
    bool found = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      if (!matches(rules[i].pattern, name)) continue;
      used[i] = true;
      if (!found) rate = rules[i].rate;
      found = true;
    }
  }
  for (size_t i = 0; i < rules.size(); ++i) {
    if (used[i]) continue;
    throw Error(
        ErrorKind::usage, "learning-rate rule '" + rules[i].pattern + "' matches no parameter",
        names.empty() ? std::string() : "parameters are named like '" + names.front() + "'; * matches any text");
  }
  return rates;
}

Optimizer::Optimizer(const std::map<std::string, at::Tensor>& parameters, const AdamWOptions& options,
                     const std::vector<RateRule>& rules)
    : options_(options) {
  std::vector<std::string> names;
  for (const auto& [name, weight] : parameters) names.push_back(name);
  const auto rates = rates_by_name(names, rules);
  for (const auto& [name, weight] : parameters) {
    if (weight.scalar_type() != at::kFloat || !weight.is_contiguous()) {
      throw Error(ErrorKind::bug, "Optimizer: the master of " + name + " is not contiguous f32");
    }
    const at::Tensor shape = weight.detach();
    entries_.push_back({name, weight, at::zeros_like(shape), at::zeros_like(shape), rates.at(name)});
  }
}

std::map<std::string, at::Tensor> Optimizer::gradients() const {
  std::map<std::string, at::Tensor> gradients;
  for (const Entry& entry : entries_) gradients[entry.name] = entry.weight.grad();
  return gradients;
}

void Optimizer::step(double learning_rate, double gradient_scale) {
  ++steps_;
  for (Entry& entry : entries_) {
    const at::Tensor& gradient = entry.weight.grad();
    if (!gradient.defined()) continue;
    at::Tensor weight = entry.weight.detach();  // same storage, outside of autograd
    adamw_update(weight, gradient, gradient_scale, entry.first, entry.second, steps_, learning_rate * entry.rate,
                 options_);
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
  for (const Entry& entry : entries_) {
    state[entry.name + ".exp_avg"] = entry.first;
    state[entry.name + ".exp_avg_sq"] = entry.second;
  }
  return state;
}

void Optimizer::load_state(const std::map<std::string, at::Tensor>& state, int64_t steps) {
  const auto own = this->state();
  for (const auto& [name, tensor] : own) {
    const auto found = state.find(name);
    if (found == state.end()) {
      throw Error(ErrorKind::format, "optimizer state: '" + name + "' is missing", "it belongs to another draft");
    }
    if (found->second.sizes() != tensor.sizes() || found->second.scalar_type() != at::kFloat) {
      throw Error(ErrorKind::format,
                  "optimizer state: '" + name + "' is " + c10::str(found->second.scalar_type(), found->second.sizes()) +
                      ", expected " + c10::str(at::kFloat, tensor.sizes()),
                  "it belongs to another draft");
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!own.contains(name)) {
      throw Error(ErrorKind::format, "optimizer state: '" + name + "' belongs to no parameter",
                  "it belongs to another draft");
    }
  }
  for (const auto& [name, tensor] : own) tensor.copy_(state.at(name));
  steps_ = steps;
}

}  // namespace pacer::optim
