// Muon and AdamW over named parameters: routes, states, counters, one step for all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/optim/adamw.h"
#include "pacer/optim/muon.h"
#include "pacer/optim/routes.h"

namespace pacer::optim {

// Multiplies the learning rate of the parameters whose name matches.
struct RateRule {
  std::string pattern;  // "markov_head.*"
  double rate = 1.0;
};

struct OptimizerOptions {
  RouteOptions routes;
  AdamWOptions adamw;
  MuonOptions muon;
  double muon_rate = 1;          // Muon's learning rate as a multiple of AdamW's
  double muon_weight_decay = 0;  // of the parameters on the route muon
};

class Optimizer {
 public:
  // parameters: contiguous f32 masters; the optimizer shares their storage and reads .grad at each step.
  // Throws Error{usage} as route_parameters and check_muon do.
  Optimizer(const std::map<std::string, at::Tensor>& parameters, const OptimizerOptions& options);

  // AdamW for all.
  Optimizer(const std::map<std::string, at::Tensor>& parameters, const AdamWOptions& options,
            const std::vector<RateRule>& rules);

  // Route and reason of every parameter, by name. The start of a run logs route_table() of it.
  const std::vector<RoutedParameter>& routed() const { return routed_; }

  // Gradients as they are now, by name; undefined where a backward did not reach.
  std::map<std::string, at::Tensor> gradients() const;

  // One step of every parameter that has a gradient; gradients are left as they are. A parameter without one keeps its
  // weight, state and counter. steps() grows by one.
  // learning_rate: AdamW's; a parameter on the route muon takes muon_rate times that.
  // Throws Error{data} naming a Muon parameter whose gradient is not finite, before anything has changed.
  void step(double learning_rate, double gradient_scale);

  void clear_gradients();
  int64_t steps() const { return steps_; }

  // State by name: "NAME.exp_avg" and "NAME.exp_avg_sq" or "NAME.momentum_buffer", and "NAME.step" (int64, the steps
  // that the parameter took part in). The tensors share storage with the optimizer.
  std::map<std::string, at::Tensor> state() const;

  // Takes over steps and state. Names, shapes and dtypes must be those of state(), none missing and none left over:
  // throws Error{format} that names the first tensor that is not. A state without any counter, as earlier versions
  // wrote it, gives all parameters `steps`.
  void load_state(const std::map<std::string, at::Tensor>& state, int64_t steps);

 private:
  struct Entry {
    at::Tensor weight, first, second;  // or first alone: the momentum
    at::Tensor counter;                // int64, one element
  };
  OptimizerOptions options_;
  std::vector<RoutedParameter> routed_;  // by name
  std::vector<Entry> entries_;           // in the same order
  int64_t steps_ = 0;
};

}  // namespace pacer::optim
