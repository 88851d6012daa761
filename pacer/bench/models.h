// Models with the sizes of a work and random values: what they cost does not depend on what they say.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include "pacer/bench/benches.h"
#include "pacer/target/config.h"
#include "pacer/target/target.h"

namespace pacer::bench {

// Values that follow from a seed, one after the other.
class Values {
 public:
  explicit Values(uint64_t seed);
  at::Tensor normal(const std::vector<int64_t>& shape, double deviation, at::ScalarType dtype);  // N(0, deviation)
  std::vector<int64_t> tokens(int64_t count, int64_t vocabulary);                                // uniform

 private:
  at::Generator generator_;
};

// A whole model: matrices N(0, 0.02), norms 1.
std::shared_ptr<const target::Target> random_target(const target::ModelConfig& config, at::ScalarType dtype,
                                                    Values& values);

// The model of settings.model, or a random one of these sizes.
std::shared_ptr<const target::Target> given_or_random(const Settings& settings, const target::ModelConfig& config,
                                                      Values& values, device::Runtime& runtime);

// Of a whole model only what a training step of a draft reads: embedding and head. Anything that needs layers throws
// Error{bug}.
std::shared_ptr<const target::Target> random_tables(const target::ModelConfig& config, at::ScalarType dtype,
                                                    Values& values);

// Elements of the matrices that one token passes: all layers and the head, no embedding.
int64_t matrix_elements(const target::ModelConfig& config);

}  // namespace pacer::bench
