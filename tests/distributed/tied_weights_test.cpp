// One tensor that two segments read: it travels, is reduced and is updated once, with both gradients in it.
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>

#include "pacer/base/random.h"
#include "pacer/parallel/engine.h"
#include "tests/distributed/ranks.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

at::Tensor random_tensor(const std::vector<int64_t>& shape, uint64_t stream, double scale) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  const RandomStream random(11, Purpose::test, 0, stream);
  random.fill_normal(tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  return tensor.mul_(scale);
}

// x -> tanh(x E) -> tanh(. M) -> sum((. E^T)^2): E is the first and the last thing that is read, as an embedding and
// its head are.
struct TiedModel {
  at::Tensor tied = random_tensor({9, 14}, 0, 0.3).requires_grad_(true);
  at::Tensor middle = random_tensor({14, 14}, 1, 0.3).requires_grad_(true);

  Tensors first(const Tensors& in) const { return {at::tanh(in[0].matmul(tied))}; }
  Tensors second(const Tensors& in) const { return {at::tanh(in[0].matmul(middle))}; }
  Tensors third(const Tensors& in) const { return {in[0].matmul(tied.t()).square().sum()}; }

  std::unique_ptr<Engine> engine(World& world, const EngineOptions& options, Route route, bool recompute) const {
    std::vector<EngineParameter> parameters = {{.name = "tied", .weight = tied, .route = route},
                                               {.name = "middle", .weight = middle, .route = Route::muon}};
    std::vector<Segment> segments = {
        {"first", {"tied"}, [this](const Tensors& in) { return first(in); }, recompute},
        {"second", {"middle"}, [this](const Tensors& in) { return second(in); }, recompute},
        {"third", {"tied"}, [this](const Tensors& in) { return third(in); }, recompute}};
    return std::make_unique<Engine>(world, std::move(parameters), std::move(segments), std::vector<size_t>{0, 1, 2},
                                    options);
  }
};

at::Tensor batch(int64_t step, int64_t leaf) {
  return random_tensor({4, 9}, static_cast<uint64_t>(100 + 10 * step + leaf), 1.0);
}

constexpr int64_t kSteps = 3;

std::map<std::string, at::Tensor> trained(World& world, const EngineOptions& options, Route route, bool recompute) {
  const TiedModel model;
  const auto engine = model.engine(world, options, route, recompute);
  const int64_t count = options.reduction.micro_batches;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t k = 0; k < count; ++k) {
      const at::Tensor h = engine->run(0, {batch(step, engine->groups().data_rank * count + k)})[0];
      engine->backward(engine->run(2, engine->run(1, {h}))[0], 4);
    }
    engine->step({.muon = 0.02, .adamw = 0.01});
  }
  std::map<std::string, at::Tensor> state;
  for (const auto& tensor : engine->state_tensors()) state[tensor.name] = engine->whole(tensor);
  for (const auto& [name, weight] : engine->weights()) state["live/" + name] = weight;
  return state;
}

EngineOptions options_for(const Mesh& mesh, int64_t micro_batches) {
  EngineOptions options;
  options.mesh = mesh;
  options.reduction = {.micro_batches = micro_batches, .exact = true};
  options.update.muon.newton_schulz.storage = at::kFloat;
  options.clip = 1;
  return options;
}

TEST(TiedWeights, GradientIsThatOfBothPlaces) {
  run_ranks(1, [](World& world) {
    const TiedModel model;
    EngineOptions options = options_for({1, 1}, 1);
    options.clip = 0;
    const auto engine = model.engine(world, options, Route::adamw, false);
    model.third(model.second(model.first({batch(0, 0)})))[0].backward();
    const at::Tensor expected = model.tied.grad().clone() / 4;
    model.tied.mutable_grad() = model.middle.mutable_grad() = at::Tensor();
    engine->backward(engine->run(2, engine->run(1, engine->run(0, {batch(0, 0)})))[0], 4);
    engine->step({.muon = 0.02, .adamw = 0.01});
    for (const auto& tensor : engine->state_tensors()) {
      if (tensor.name != "tied.exp_avg") continue;
      EXPECT_TRUE(test::close(engine->whole(tensor) / (1 - options.update.adamw.beta1), expected, 1e-6, 1e-4));
    }
    EXPECT_EQ(engine->counters().at("tied"), 1);
  });
}

TEST(TiedWeights, AreTheSameOnEveryMesh) {
  run_ranks(2, [](World& world) {
    for (const Route route : {Route::muon, Route::adamw, Route::sharded_adamw}) {
      World one({}, {});
      const auto reference = trained(one, options_for({1, 1}, 2), route, false);
      for (const Mesh& mesh : {Mesh{2, 1}, {1, 2}}) {
        for (const bool freed : {false, true}) {
          SCOPED_TRACE(optim::name_of(route) + " " + mesh.text() + (freed ? " freed, computed again" : " kept"));
          EngineOptions options = options_for(mesh, 1);
          options.free_weights = freed;
          const auto state = trained(world, options, route, /*recompute=*/freed);
          ASSERT_EQ(state.size(), reference.size());
          for (const auto& [name, tensor] : reference) EXPECT_TRUE(test::same_bits(state.at(name), tensor)) << name;
        }
      }
    }
  });
}

}  // namespace
}  // namespace pacer::parallel
