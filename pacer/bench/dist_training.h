// One rank of a data-parallel training of a language model, step by step, as `pacer bench dist` times it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "pacer/bench/works.h"
#include "pacer/parallel/engine.h"
#include "pacer/parallel/prediction.h"

namespace pacer::bench {

struct DistSetting {
  target::ModelConfig config;
  int64_t batch = 1, seq = 0;  // of each rank
  // adamw: AdamW for all. muon_owner: each layer matrix by its owner. muon_replicated: every rank sums all gradients
  // and orthogonalises every matrix, as without owners; DDP only.
  std::string optimizer;
  bool fsdp = false;  // weights cut over the ranks and freed behind their use; else DDP
  bool exact = false;
  int64_t micro_batches = 1;
  parallel::Accumulation accumulation = parallel::Accumulation::no_sync;
  bool overlap = true;
  bool settle = true;                      // a step ends when its messages have; else they go on behind the next one
  at::ScalarType storage = at::kBFloat16;  // between products of Newton-Schulz
  uint64_t seed = 0;

  parallel::Mesh mesh(int64_t ranks) const;
};

// Throws Error{format} for a work with an optimizer or wrap that does not exist.
DistSetting dist_setting(const Work& work, at::ScalarType storage);

struct StepCost {
  double wall = 0, cpu = 0;                      // seconds of this rank from the first forward to the end of messages
  double optimizer_wall = 0, optimizer_cpu = 0;  // of that, from the last backward on
};

class DistTraining {
 public:
  // All ranks make it with the same setting.
  static std::unique_ptr<DistTraining> make(parallel::World& world, const DistSetting& setting);
  virtual ~DistTraining() = default;

  virtual StepCost step() = 0;                                     // all ranks together
  virtual void settle() = 0;                                       // waits for all messages
  virtual double loss() const = 0;                                 // of the last step
  virtual std::map<std::string, parallel::Traffic> traffic() = 0;  // of this rank in the last step
  virtual double orthogonalise_cpu() = 0;                          // does again what a step orthogonalises here
  virtual void forward_backward() = 0;                             // one micro-batch without any message
  virtual std::optional<parallel::PredictionInput> prediction_input() = 0;  // sizes and settings, no rates
};

}  // namespace pacer::bench
