// The model of the correctness gate: four residual blocks whose gradients are large everywhere.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pacer/parallel/engine.h"

namespace pacer::parallel {

// 3,148,033 parameters: blocks of LayerNorm(256), gate and up 256 -> 1024, down 1024 -> 256 without bias, with
//   x <- x + down(gate(h) * up(h)),  h = LayerNorm(x)
// and a head 256 -> 1 with bias; the loss of a leaf is the sum of its outputs. The twelve projections take muon, the
// norms adamw, the head sharded_adamw. Weights are uniform in +-1 / sqrt(inputs) from seed 42, norms one and zero.
class GateModel {
 public:
  GateModel(at::ScalarType weights, c10::Device device);
  std::vector<EngineParameter> parameters(at::ScalarType messages) const;
  std::vector<Segment> segments() const;
  std::vector<size_t> calls() const { return {0, 1, 2, 3, 4}; }
  // Forward and backward of one leaf, whose batch [4, 256] is N(0, 1) from this seed.
  void micro_batch(Engine& engine, uint64_t seed) const;

 private:
  at::ScalarType dtype_;
  c10::Device device_;
  std::vector<std::string> names_;
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace pacer::parallel
