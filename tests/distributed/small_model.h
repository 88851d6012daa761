// A model of three segments that is small enough to be trained in a test on every mesh, and its reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pacer/device/kernels.h"
#include "pacer/parallel/engine.h"

namespace pacer::parallel {

struct SmallModelOptions {
  at::ScalarType weight_dtype = at::kFloat, message_dtype = at::kFloat;
  bool recompute = false;
  bool twice = false;     // the first two segments run twice, one behind the other
  bool use_extra = true;  // the parameter `extra.weight` takes part
  c10::Device device = device::host_device();
};

// Routes: matrices of the layers muon, their gains adamw, the head sharded_adamw (with a chunk that is short and, for
// `tiny.weight`, chunks that are empty), `bias` replicated.
class SmallModel {
 public:
  explicit SmallModel(const SmallModelOptions& options);
  std::vector<EngineParameter> parameters() const;
  std::vector<Segment> segments() const;
  std::vector<size_t> calls() const;
  const at::Tensor& weight(const std::string& name) const { return weights_.at(name); }

  // Forward and backward of one leaf through the engine. skip_middle: the second segment is left out on this rank.
  void micro_batch(Engine& engine, int64_t step, int64_t leaf, bool skip_middle = false) const;
  // The same loss in plain autograd.
  at::Tensor plain_loss(int64_t step, int64_t leaf) const;
  static int64_t count_of(int64_t leaf) { return 3 + leaf % 2; }  // rows of a leaf

 private:
  Tensors first(const Tensors& inputs) const;
  Tensors second(const Tensors& inputs) const;
  Tensors third(const Tensors& inputs) const;
  SmallModelOptions options_;
  std::map<std::string, at::Tensor> weights_;
};

at::Tensor small_batch(int64_t step, int64_t leaf);  // in host memory

EngineOptions small_options(const Mesh& mesh, int64_t micro_batches, bool exact);

// Everything that a run leaves behind after each step, on every rank.
struct Trail {
  std::vector<double> losses;
  std::vector<at::Tensor> norms;
  std::vector<std::map<std::string, at::Tensor>> states;  // masters, moments, counters, and "live/NAME"
};

// Trains the model for some steps on this world's mesh.
Trail train_small(World& world, const EngineOptions& options, const SmallModelOptions& model, int64_t steps);

// One process with all leaves of the step as micro-batches, exact.
Trail alone(const SmallModelOptions& model, int64_t leaves, int64_t steps, const EngineOptions& like);

std::map<std::string, at::Tensor> state_of(Engine& engine);

void expect_same(const Trail& a, const Trail& b);

}  // namespace pacer::parallel
