// AdamW over named parameters: moments, rates by name, one step for all of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/optim/adamw.h"

namespace pacer::optim {

// Multiplies the learning rate of the parameters whose name matches. `*` stands for any run of characters, also empty.
struct RateRule {
  std::string pattern;  // "markov_head.*"
  double rate = 1.0;
};

bool matches(const std::string& pattern, const std::string& name);

// Rate of every name: that of the first rule that matches, else 1.
// Throws Error{usage} for a rule that matches no name: it is a misspelt one.
std::map<std::string, double> rates_by_name(const std::vector<std::string>& names, const std::vector<RateRule>& rules);

class Optimizer {
 public:
  // parameters: contiguous f32 masters; the optimizer shares their storage and reads .grad at each step.
  Optimizer(const std::map<std::string, at::Tensor>& parameters, const AdamWOptions& options,
            const std::vector<RateRule>& rules);

  // Gradients as they are now, by name; undefined where a backward did not reach.
  std::map<std::string, at::Tensor> gradients() const;

  // One step of every parameter that has a gradient; gradients are left as they are. steps() grows by one.
  void step(double learning_rate, double gradient_scale);

  void clear_gradients();
  int64_t steps() const { return steps_; }

  // Moments by name: "NAME.exp_avg" and "NAME.exp_avg_sq", f32. The tensors share storage with the optimizer.
  std::map<std::string, at::Tensor> state() const;

  // Takes over steps and moments. Names, shapes and dtypes must be those of state(), none missing and none left over:
  // throws Error{format} that names the first tensor that is not.
  void load_state(const std::map<std::string, at::Tensor>& state, int64_t steps);

 private:
  struct Entry {
    std::string name;
    at::Tensor weight, first, second;
    double rate;
  };
  std::vector<Entry> entries_;  // by name
  AdamWOptions options_;
  int64_t steps_ = 0;
};

}  // namespace pacer::optim
