#include "tests/distributed/small_model.h"

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tanh.h>

#include "pacer/base/random.h"
#include "pacer/device/device_memory.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

at::Tensor random_tensor(const std::vector<int64_t>& shape, uint64_t step, uint64_t sample, double scale) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  const RandomStream stream(7, Purpose::test, step, sample);
  float* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(scale * stream.normal(static_cast<uint64_t>(i)));
  }
  return tensor;
}

struct Shape {
  const char* name;
  std::vector<int64_t> sizes;
  Route route;
  bool replicated;
};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {
      {"layers.0.weight", {40, 24}, Route::muon, false},
      {"layers.0.gain", {40}, Route::adamw, false},
      {"layers.1.weight", {24, 40}, Route::muon, false},
      {"layers.1.gain", {24}, Route::adamw, false},
      {"head.weight", {24, 450}, Route::sharded_adamw, false},
      {"tiny.weight", {5}, Route::sharded_adamw, false},
      {"bias", {3000}, Route::adamw, true},
      {"extra.weight", {24, 6}, Route::muon, false},
  };
  return kShapes;
}

}  // namespace

at::Tensor small_batch(int64_t step, int64_t leaf) {
  return random_tensor({SmallModel::count_of(leaf), 24}, 1000 + static_cast<uint64_t>(step),
                       static_cast<uint64_t>(leaf), 1.0);
}

SmallModel::SmallModel(const SmallModelOptions& options) : options_(options) {
  uint64_t number = 0;
  for (const Shape& shape : shapes()) {
    const at::Tensor values = random_tensor(shape.sizes, 0, number++, 0.2);
    weights_[shape.name] = values.to(options.device, options.weight_dtype).contiguous().requires_grad_(true);
  }
}

std::vector<EngineParameter> SmallModel::parameters() const {
  std::vector<EngineParameter> parameters;
  for (const Shape& shape : shapes()) {
    parameters.push_back({.name = shape.name,
                          .weight = weights_.at(shape.name),
                          .route = shape.route,
                          .replicated = shape.replicated,
                          .message_dtype = options_.message_dtype});
  }
  return parameters;
}

Tensors SmallModel::first(const Tensors& inputs) const {
  const at::Tensor x = inputs[0].to(options_.weight_dtype);
  return {at::tanh(x.matmul(weight("layers.0.weight").t())) * weight("layers.0.gain")};
}

Tensors SmallModel::second(const Tensors& inputs) const {
  at::Tensor y = at::tanh(inputs[0].matmul(weight("layers.1.weight").t())) * weight("layers.1.gain");
  if (options_.use_extra) y = y + y.matmul(weight("extra.weight")).sum(-1, true);
  return {y + inputs[1].to(options_.weight_dtype)};
}

Tensors SmallModel::third(const Tensors& inputs) const {
  const at::Tensor scores = at::tanh(inputs[0].matmul(weight("head.weight")));
  const at::Tensor loss = (scores * scores).sum() + (weight("tiny.weight") * inputs[0].sum()).sum() +
                          (weight("bias") * weight("bias")).sum() * 0.01;
  return {loss.to(at::kFloat)};
}

std::vector<Segment> SmallModel::segments() const {
  const auto bound = [this](Tensors (SmallModel::*part)(const Tensors&) const) {
    return [this, part](const Tensors& inputs) { return (this->*part)(inputs); };
  };
  std::vector<std::string> middle = {"layers.1.weight", "layers.1.gain"};
  if (options_.use_extra) middle.push_back("extra.weight");
  return {{"first", {"layers.0.weight", "layers.0.gain"}, bound(&SmallModel::first), options_.recompute},
          {"second", middle, bound(&SmallModel::second), options_.recompute},
          {"third", {"head.weight", "tiny.weight", "bias"}, bound(&SmallModel::third), false}};
}

std::vector<size_t> SmallModel::calls() const {
  return options_.twice ? std::vector<size_t>{0, 1, 0, 1, 2} : std::vector<size_t>{0, 1, 2};
}

void SmallModel::micro_batch(Engine& engine, int64_t step, int64_t leaf, bool skip_middle) const {
  const at::Tensor x = small_batch(step, leaf).to(options_.device);
  const at::Tensor h = engine.run(0, {x})[0];
  if (skip_middle) {
    const at::Tensor loss = engine.run(2, {x + h.narrow(1, 0, 24)})[0];
    return engine.backward(loss, count_of(leaf));
  }
  at::Tensor y = engine.run(1, {h, x})[0];
  if (options_.twice) {
    const at::Tensor again = engine.run(2, {y})[0];
    y = engine.run(3, {again, y})[0];
  }
  engine.backward(engine.run(calls().size() - 1, {y})[0], count_of(leaf));
}

at::Tensor SmallModel::plain_loss(int64_t step, int64_t leaf) const {
  const at::Tensor x = small_batch(step, leaf).to(options_.device);
  at::Tensor y = second({first({x})[0], x})[0];
  if (options_.twice) y = second({first({y})[0], y})[0];
  return third({y})[0];
}

EngineOptions small_options(const Mesh& mesh, int64_t micro_batches, bool exact) {
  EngineOptions options;
  options.mesh = mesh;
  options.reduction.micro_batches = micro_batches;
  options.reduction.exact = exact;
  options.update.muon.newton_schulz.storage = at::kFloat;
  options.clip = 1.0;
  return options;
}

std::map<std::string, at::Tensor> state_of(Engine& engine) {
  std::map<std::string, at::Tensor> state;
  for (const auto& tensor : engine.state_tensors()) state[tensor.name] = device::to_host(engine.whole(tensor));
  for (const auto& [name, steps] : engine.counters()) state["steps/" + name] = at::full({}, steps, at::kLong);
  for (const auto& [name, weight] : engine.weights()) state["live/" + name] = device::to_host(weight);
  return state;
}

Trail train_small(World& world, const EngineOptions& options, const SmallModelOptions& small, int64_t steps) {
  const SmallModel model(small);
  Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
  Trail trail;
  const int64_t count = options.reduction.micro_batches;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t k = 0; k < count; ++k) model.micro_batch(engine, step, engine.groups().data_rank * count + k);
    const StepReport report = engine.step({.muon = 0.02, .adamw = 0.01});
    trail.losses.push_back(report.loss);
    trail.norms.push_back(device::to_host(report.norm));
    trail.states.push_back(state_of(engine));
  }
  return trail;
}

Trail alone(const SmallModelOptions& model, int64_t leaves, int64_t steps, const EngineOptions& like) {
  EngineOptions options = like;
  options.mesh = {1, 1};
  options.reduction = {.micro_batches = leaves, .accumulation = Accumulation::reduce_each, .exact = true};
  World world({}, {});
  return train_small(world, options, model, steps);
}

void expect_same(const Trail& a, const Trail& b) {
  ASSERT_EQ(a.states.size(), b.states.size());
  for (size_t step = 0; step < a.states.size(); ++step) {
    EXPECT_EQ(a.losses[step], b.losses[step]) << "step " << step;
    EXPECT_TRUE(test::same_bits(a.norms[step], b.norms[step])) << "step " << step;
    ASSERT_EQ(a.states[step].size(), b.states[step].size());
    for (const auto& [name, tensor] : a.states[step]) {
      ASSERT_TRUE(b.states[step].contains(name)) << name;
      EXPECT_TRUE(test::same_bits(tensor, b.states[step].at(name))) << name << ", step " << step;
    }
  }
}

}  // namespace pacer::parallel
