#include "pacer/parallel/gate_model.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>

#include "pacer/base/random.h"

namespace pacer::parallel {
namespace {

constexpr int64_t kWidth = 256, kInner = 1024, kBlocks = 4, kRows = 4;
constexpr uint64_t kWeightSeed = 42;

at::Tensor uniform(const std::vector<int64_t>& shape, double bound, uint64_t number) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  const RandomStream stream(kWeightSeed, Purpose::initial_weights, 0, number);
  float* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    values[i] = static_cast<float>(bound * (2 * stream.uniform(static_cast<uint64_t>(i)) - 1));
  }
  return tensor;
}

at::Tensor batch(uint64_t seed) {
  at::Tensor tensor = at::empty({kRows, kWidth}, at::kFloat);
  const RandomStream stream(seed, Purpose::test);
  float* values = tensor.mutable_data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
  return tensor;
}

std::string prefix_of(int64_t block) { return "blocks." + std::to_string(block) + "."; }

}  // namespace

GateModel::GateModel(at::ScalarType weights, c10::Device device) : dtype_(weights), device_(device) {
  const auto add = [&](const std::string& name, const at::Tensor& values) {
    names_.push_back(name);
    weights_[name] = values.to(dtype_).contiguous().to(device_).requires_grad_(true);
  };
  uint64_t number = 0;
  for (int64_t block = 0; block < kBlocks; ++block) {
    add(prefix_of(block) + "norm.weight", at::full({kWidth}, 1.0));
    add(prefix_of(block) + "norm.bias", at::full({kWidth}, 0.0));
    add(prefix_of(block) + "gate.weight", uniform({kInner, kWidth}, 1 / std::sqrt(kWidth), number++));
    add(prefix_of(block) + "up.weight", uniform({kInner, kWidth}, 1 / std::sqrt(kWidth), number++));
    add(prefix_of(block) + "down.weight", uniform({kWidth, kInner}, 1 / std::sqrt(kInner), number++));
  }
  add("head.weight", uniform({1, kWidth}, 1 / std::sqrt(kWidth), number++));
  add("head.bias", uniform({1}, 1 / std::sqrt(kWidth), number++));
}

std::vector<EngineParameter> GateModel::parameters(at::ScalarType messages) const {
  std::vector<EngineParameter> parameters;
  for (const std::string& name : names_) {
    const Route route = name.starts_with("head")                   ? Route::sharded_adamw
                        : name.find(".norm.") != std::string::npos ? Route::adamw
                                                                   : Route::muon;
    parameters.push_back({.name = name,
                          .weight = weights_.at(name),
                          .route = route,
                          .message_dtype = messages,
                          .unit = route == Route::sharded_adamw ? "head" : ""});
  }
  return parameters;
}

std::vector<Segment> GateModel::segments() const {
  std::vector<Segment> segments;
  for (int64_t block = 0; block < kBlocks; ++block) {
    const std::string prefix = prefix_of(block);
    const auto weight = [this, prefix](const char* name) { return weights_.at(prefix + name); };
    segments.push_back({prefix,
                        {prefix + "norm.weight", prefix + "norm.bias", prefix + "gate.weight", prefix + "up.weight",
                         prefix + "down.weight"},
                        [weight](const Tensors& inputs) -> Tensors {
                          const at::Tensor h =
                              at::layer_norm(inputs[0], {kWidth}, weight("norm.weight"), weight("norm.bias"));
                          const at::Tensor inner =
                              at::linear(h, weight("gate.weight")) * at::linear(h, weight("up.weight"));
                          return {inputs[0] + at::linear(inner, weight("down.weight"))};
                        }});
  }
  segments.push_back({"head", {"head.weight", "head.bias"}, [this](const Tensors& inputs) -> Tensors {
                        const at::Tensor outputs =
                            at::linear(inputs[0], weights_.at("head.weight"), weights_.at("head.bias"));
                        return {outputs.to(at::kFloat).sum()};
                      }});
  return segments;
}

void GateModel::micro_batch(Engine& engine, uint64_t seed) const {
  Tensors values = {batch(seed).to(dtype_).to(device_)};
  for (const size_t call : calls()) values = engine.run(call, values);
  engine.backward(values[0], 1);
}

}  // namespace pacer::parallel
