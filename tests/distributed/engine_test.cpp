#include "pacer/parallel/engine.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "pacer/base/error.h"
#include "pacer/optim/adamw.h"
#include "pacer/optim/muon.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_model.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

using ::testing::HasSubstr;

// Sums in the order of the definition.
at::Tensor naive_tree(const std::vector<at::Tensor>& leaves, size_t begin, size_t count) {
  if (count == 1) return leaves[begin].clone();
  size_t half = 1;
  while (2 * half < count) half *= 2;
  return naive_tree(leaves, begin, half) + naive_tree(leaves, begin + half, count - half);
}

double naive_norm(const std::map<std::string, at::Tensor>& gradients) {
  double sum = 0;
  for (const auto& [name, gradient] : gradients) sum += gradient.to(at::kDouble).square().sum().item<double>();
  return std::sqrt(sum);
}

// One process against plain autograd and the formulas, step by step.
TEST(Engine, OneProcessIsPlainAutogradWithTheUpdatesOfEachRoute) {
  run_ranks(1, [](World& world) {
    const SmallModelOptions small;
    const SmallModel model(small), reference(small);
    EngineOptions options = small_options({1, 1}, 3, true);
    Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
    std::map<std::string, at::Tensor> momentum, first, second;
    for (int64_t step = 0; step < 3; ++step) {
      std::map<std::string, std::vector<at::Tensor>> leaves;
      double loss = 0;
      int64_t count = 0;
      for (int64_t leaf = 0; leaf < 3; ++leaf) {
        model.micro_batch(engine, step, leaf);
        const at::Tensor plain = reference.plain_loss(step, leaf);
        plain.backward();
        loss += plain.item<double>();
        count += SmallModel::count_of(leaf);
        for (const EngineParameter& p : reference.parameters()) {
          at::Tensor weight = p.weight;
          leaves[p.name].push_back(weight.grad().clone());
          weight.mutable_grad() = at::Tensor();
        }
      }
      std::map<std::string, at::Tensor> gradients;
      for (const auto& [name, values] : leaves) {
        gradients[name] = naive_tree(values, 0, values.size()) * (1.0 / static_cast<double>(count));
      }
      const StepReport report = engine.step({.muon = 0.02, .adamw = 0.01});
      const double norm = naive_norm(gradients);
      EXPECT_EQ(report.count, count);
      EXPECT_NEAR(report.loss, loss / static_cast<double>(count), 1e-6 * std::abs(report.loss));
      EXPECT_NEAR(report.norm.item<double>(), norm, 1e-5 * norm);
      EXPECT_GT(norm, 1.0) << "clipping is active";
      EXPECT_TRUE(report.clipped.item<bool>());
      EXPECT_FALSE(report.found_inf.item<bool>());
      const double coefficient = 1.0 / (norm + 1e-6);
      for (const EngineParameter& p : reference.parameters()) {
        at::Tensor weight = p.weight.detach();
        const at::Tensor gradient = (gradients.at(p.name) * coefficient).contiguous();
        if (p.route == Route::muon) {
          if (step == 0) momentum[p.name] = optim::zero_momentum(weight, options.update.muon);
          optim::muon_update({{.name = p.name,
                               .weight = weight,
                               .gradient = gradient,
                               .momentum = momentum[p.name],
                               .rate = 0.02,
                               .weight_decay = 0.1}},
                             options.update.muon);
        } else {
          if (step == 0) first[p.name] = at::zeros_like(weight), second[p.name] = at::zeros_like(weight);
          optim::adamw_update(weight, gradient, 1.0, first[p.name], second[p.name], step + 1, 0.01,
                              options.update.adamw);
        }
      }
      const auto state = state_of(engine);
      for (const EngineParameter& p : reference.parameters()) {
        EXPECT_TRUE(test::close(state.at(p.name), p.weight, 1e-6, 1e-5)) << p.name << ", step " << step;
        EXPECT_TRUE(test::same_bits(state.at("live/" + p.name), state.at(p.name))) << p.name;
        EXPECT_EQ(state.at("steps/" + p.name).item<int64_t>(), step + 1);
      }
    }
  });
}

struct Case {
  Mesh mesh;
  int64_t micro_batches;
  Accumulation accumulation = Accumulation::reduce_each;
  bool free_weights = false;
  Unshard unshard = Unshard::broadcast;
  bool overlap = true;
};

std::string text_of(const Case& c) {
  return c.mesh.text() + ", " + std::to_string(c.micro_batches) + " micro-batches, " + name_of(c.accumulation) +
         (c.free_weights ? ", free, " : ", kept, ") + name_of(c.unshard) + (c.overlap ? "" : ", synchronous");
}

void expect_as_alone(int64_t ranks, const std::vector<Case>& cases, const SmallModelOptions& model) {
  run_ranks(ranks, [&](World& world) {
    std::map<int64_t, Trail> references;
    for (const Case& c : cases) {
      SCOPED_TRACE(text_of(c));
      EngineOptions options = small_options(c.mesh, c.micro_batches, true);
      options.reduction.accumulation = c.accumulation;
      options.free_weights = c.free_weights;
      options.unshard = c.unshard;
      options.overlap = c.overlap;
      const int64_t leaves = c.mesh.size() * c.micro_batches;
      if (!references.contains(leaves)) references[leaves] = alone(model, leaves, 3, options);
      expect_same(train_small(world, options, model, 3), references.at(leaves));
    }
  });
}

constexpr Accumulation kForms[] = {Accumulation::reduce_each, Accumulation::no_sync, Accumulation::replicate_gate};

TEST(ExactEngine, FourRanksOnEveryMeshAreOneProcess) {
  std::vector<Case> cases;
  for (const Mesh& mesh : {Mesh{4, 1}, {2, 2}, {1, 4}}) {
    cases.push_back({mesh, 1});
    cases.push_back({mesh, 1, Accumulation::no_sync, true, Unshard::all_gather});
    for (const Accumulation form : kForms) cases.push_back({mesh, 2, form, form != Accumulation::no_sync});
    cases.push_back({mesh, 3, Accumulation::replicate_gate, true, Unshard::broadcast, false});
  }
  expect_as_alone(4, cases, {});
}

TEST(ExactEngine, RanksAndMicroBatchesThatAreNoPowerOfTwo) {
  std::vector<Case> cases;
  for (const Mesh& mesh : {Mesh{3, 1}, {1, 3}}) {
    for (const Accumulation form : kForms) cases.push_back({mesh, 3, form, form == Accumulation::no_sync});
  }
  expect_as_alone(3, cases, {});
}

TEST(ExactEngine, TwoRanksWithSegmentsThatRunTwiceAndAreComputedAgain) {
  expect_as_alone(2, {{{2, 1}, 2}, {{1, 2}, 2, Accumulation::no_sync, true}}, {.recompute = true, .twice = true});
}

TEST(ExactEngine, RecomputingChangesNoBit) {
  run_ranks(1, [](World&) {
    const EngineOptions options = small_options({1, 1}, 2, true);
    expect_same(alone({.twice = true}, 2, 2, options), alone({.recompute = true, .twice = true}, 2, 2, options));
  });
}

TEST(ExactEngine, WeightsInHalfPrecisionWithMastersInF32) {
  std::vector<Case> cases = {{{2, 1}, 1}};
  for (const Accumulation form : kForms) cases.push_back({{1, 2}, 2, form, true});
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) expect_as_alone(2, cases, {.weight_dtype = dtype});
}

// Without exact mode and with one micro-batch ranks are the leaves, so the mesh still changes nothing; with several the
// forms of accumulation agree up to rounding.
TEST(FastEngine, MeshesAgreeAndSoDoTheFormsOfAccumulation) {
  run_ranks(4, [](World& world) {
    const Trail reference = alone({}, 4, 2, small_options({1, 1}, 4, true));
    for (const Mesh& mesh : {Mesh{4, 1}, {2, 2}, {1, 4}}) {
      SCOPED_TRACE(mesh.text());
      expect_same(train_small(world, small_options(mesh, 1, false), {}, 2), reference);
    }
    const Trail exact = alone({}, 8, 1, small_options({1, 1}, 8, true));
    for (const Accumulation form : kForms) {
      EngineOptions options = small_options({2, 2}, 2, false);
      options.reduction.accumulation = form;
      const Trail fast = train_small(world, options, {}, 1);
      for (const auto& [name, tensor] : exact.states[0]) {
        EXPECT_TRUE(test::close(fast.states[0].at(name), tensor, 1e-6, 1e-4)) << name << ", " << name_of(form);
      }
    }
  });
}

TEST(FastEngine, MessagesInHalfPrecisionAreAddedInF32) {
  run_ranks(2, [](World& world) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const SmallModelOptions half{.weight_dtype = dtype, .message_dtype = dtype};
      const Trail rows = train_small(world, small_options({2, 1}, 1, false), half, 2);
      const Trail shards = train_small(world, small_options({1, 2}, 1, false), half, 2);
      expect_same(rows, shards);
      // Gradients have their weights' dtype: sending them as such loses nothing, and f32 messages give the same sums.
      const SmallModelOptions wide{.weight_dtype = dtype, .message_dtype = at::kFloat};
      expect_same(rows, train_small(world, small_options({2, 1}, 1, false), wide, 2));
    }
  });
}

// As an evaluation in the middle of a step does it.
TEST(Engine, LookingAtTheWeightsBetweenBackwardAndStepChangesNothing) {
  run_ranks(2, [](World& world) {
    for (const Case& c : {Case{{2, 1}, 2}, Case{{1, 2}, 2, Accumulation::reduce_each, true}}) {
      SCOPED_TRACE(text_of(c));
      EngineOptions options = small_options(c.mesh, c.micro_batches, true);
      options.free_weights = c.free_weights;
      const Trail undisturbed = train_small(world, options, {}, 2);
      const SmallModel model(SmallModelOptions{});
      Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
      for (size_t step = 0; step < 2; ++step) {
        const auto before = state_of(engine);
        for (int64_t k = 0; k < c.micro_batches; ++k) {
          model.micro_batch(engine, static_cast<int64_t>(step), world.rank() * c.micro_batches + k);
        }
        for (const auto& [name, weight] : engine.weights()) {
          EXPECT_TRUE(test::same_bits(weight, before.at("live/" + name))) << name;
        }
        engine.step({.muon = 0.02, .adamw = 0.01});
        const auto after = state_of(engine);
        for (const auto& [name, tensor] : undisturbed.states[step]) {
          EXPECT_TRUE(test::same_bits(tensor, after.at(name))) << name;
        }
      }
    }
  });
}

TEST(Engine, AGradientOnOneRankIsZeroOnTheOthersAndNowhereMeansUntouched) {
  run_ranks(2, [](World& world) {
    for (const bool free_weights : {false, true}) {
      const SmallModel model(SmallModelOptions{});
      EngineOptions options = small_options({1, 2}, 1, true);
      options.free_weights = free_weights;
      Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
      const auto before = state_of(engine);
      model.micro_batch(engine, 0, world.rank(), /*skip_middle=*/true);  // on every rank
      engine.step({.muon = 0.02, .adamw = 0.01});
      auto after = state_of(engine);
      for (const char* name : {"layers.1.weight", "layers.1.gain", "extra.weight"}) {
        EXPECT_TRUE(test::same_bits(after.at(name), before.at(name))) << name;
        EXPECT_EQ(after.at(std::string("steps/") + name).item<int64_t>(), 0);
      }
      EXPECT_FALSE(test::same_bits(after.at("layers.0.weight"), before.at("layers.0.weight")));

      model.micro_batch(engine, 1, world.rank(), world.rank() == 1);  // on one
      engine.step({.muon = 0.02, .adamw = 0.01});
      after = state_of(engine);
      EXPECT_EQ(after.at("steps/layers.1.weight").item<int64_t>(), 1);
      EXPECT_EQ(after.at("steps/layers.0.weight").item<int64_t>(), 2);
      EXPECT_FALSE(test::same_bits(after.at("layers.1.weight"), before.at("layers.1.weight")));
    }
  });
}

// A rank without anything for a micro-batch takes part in its messages all the same.
TEST(Engine, AMicroBatchThatIsSkippedIsZeroAndHoldsNobodyUp) {
  const auto trained = [](World& world, const Mesh& mesh, bool free_weights) {
    const SmallModel model(SmallModelOptions{});
    EngineOptions options = small_options(mesh, 2 / mesh.size(), true);
    options.free_weights = free_weights;
    Engine engine(world, model.parameters(), model.segments(), model.calls(), options);
    for (int64_t step = 0; step < 2; ++step) {
      for (int64_t leaf = 0; leaf < 2; ++leaf) {
        if (mesh.size() > 1 && leaf != world.rank()) continue;
        if (leaf == 1) {
          engine.skip_micro_batch();
        } else {
          model.micro_batch(engine, step, leaf);
        }
      }
      EXPECT_EQ(engine.step({.muon = 0.02, .adamw = 0.01}).count, SmallModel::count_of(0));
    }
    return state_of(engine);
  };
  run_ranks(2, [&](World& world) {
    World one({}, {});
    const auto reference = trained(one, {1, 1}, false);
    for (const Mesh& mesh : {Mesh{2, 1}, {1, 2}}) {
      const auto state = trained(world, mesh, mesh.shard == 2);
      for (const auto& [name, tensor] : reference) {
        EXPECT_TRUE(test::same_bits(state.at(name), tensor)) << name << " on " << mesh.text();
      }
    }
  });
}

TEST(Engine, InitialValuesAreThoseOfRankZero) {
  run_ranks(2, [](World& world) {
    const SmallModel model(SmallModelOptions{});
    const at::Tensor kept = model.weight("head.weight").detach().clone();
    if (world.rank() == 1) {
      for (const EngineParameter& p : model.parameters()) p.weight.detach().fill_(5.0);
    }
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 2}, 1, true));
    const auto state = state_of(engine);
    EXPECT_TRUE(test::same_bits(state.at("head.weight"), kept));
    EXPECT_TRUE(test::same_bits(state.at("live/head.weight"), kept));
  });
}

TEST(Engine, ANormThatIsNotFiniteChangesNothingAnywhere) {
  run_ranks(2, [](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({2, 1}, 1, true));
    const auto before = state_of(engine);
    at::Tensor h = engine.run(0, {small_batch(0, world.rank())})[0];
    const double factor = world.rank() == 1 ? std::numeric_limits<double>::quiet_NaN() : 1.0;
    const at::Tensor y = engine.run(1, {h * factor, small_batch(0, world.rank())})[0];
    engine.backward(engine.run(2, {y})[0], 1);
    const StepReport report = engine.step({.muon = 0.02, .adamw = 0.01});
    EXPECT_FALSE(report.updated);
    EXPECT_FALSE(report.not_finite.empty());
    EXPECT_NE(report.not_finite, "bias") << "whose gradient does not depend on the input";
    EXPECT_TRUE(report.found_inf.item<bool>());
    EXPECT_FALSE(report.clipped.item<bool>());
    for (const auto& [name, tensor] : state_of(engine)) EXPECT_TRUE(test::same_bits(tensor, before.at(name))) << name;
    model.micro_batch(engine, 1, world.rank());
    EXPECT_TRUE(engine.step({.muon = 0.02, .adamw = 0.01}).updated) << "the next step is a normal one";
  });
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "nothing";
}

TEST(Engine, AnotherOrderIsAnErrorOnEveryMesh) {
  run_ranks(2, [](World& world) {
    for (const Mesh& mesh : {Mesh{2, 1}, {1, 2}}) {
      const SmallModel model(SmallModelOptions{});
      Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options(mesh, 2, true));
      const auto step = [&] { engine.step({.muon = 0.02, .adamw = 0.01}); };
      EXPECT_EQ(refusal(step), "step() after 0 of 2 micro-batches");
      model.micro_batch(engine, 0, 2 * world.rank());
      EXPECT_EQ(refusal(step), "step() after 1 of 2 micro-batches");
      engine.run(1, {at::full({3, 40}, 1.0), small_batch(0, 0)});
      EXPECT_THAT(refusal([&] { engine.run(0, {small_batch(0, 0)}); }), HasSubstr("after a later call"));
      engine.abandon();
      // Abandoned gradients are gone: this is the step of a fresh engine.
      for (const int64_t k : {0, 1}) model.micro_batch(engine, 0, 2 * world.rank() + k);
      EXPECT_THAT(refusal([&] { engine.run(0, {small_batch(0, 0)}); }), HasSubstr("after the last micro-batch"));
      step();
      EXPECT_EQ(refusal(step), "step() after 0 of 2 micro-batches");
      const Trail reference = alone({}, 4, 1, small_options(mesh, 2, true));
      for (const auto& [name, tensor] : state_of(engine)) {
        EXPECT_TRUE(test::same_bits(tensor, reference.states[0].at(name))) << name;
      }
    }
  });
}

TEST(Engine, ExactModeNeedsOneThreadInsideOfOperators) {
  run_ranks(1, [](World& world) {
    at::set_num_threads(2);
    const SmallModel model(SmallModelOptions{});
    EXPECT_THAT(refusal([&] {
                  Engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 1}, 1, true));
                }),
                HasSubstr("exact mode with 2 threads"));
  });
}

TEST(Engine, RanksWithDifferentModelsDoNotStart) {
  const auto outcomes = outcomes_of_ranks(2, [](World& world) {
    const SmallModel model(SmallModelOptions{.use_extra = world.rank() == 0});
    Engine(world, model.parameters(), model.segments(), model.calls(), small_options({2, 1}, 1, true));
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcomes[1].error, HasSubstr("the plan of the training of rank 1 is not that of rank 0"));
}

// The bytes of docs/distributed.md for one step on two ranks.
TEST(Engine, MovesWhatThePageOfBytesSays) {
  run_ranks(2, [](World& world) {
    for (const Mesh& mesh : {Mesh{2, 1}, {1, 2}}) {
      const SmallModel model(SmallModelOptions{});
      Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options(mesh, 1, true));
      ProcessGroup& axis = mesh.shard == 2 ? *engine.groups().row : *engine.groups().column;
      double owned = 0, sharded = 0, replicated = 0;
      for (const EngineParameter& p : model.parameters()) {
        const auto bytes = static_cast<double>(p.weight.nbytes());
        (p.replicated ? replicated : p.route == Route::sharded_adamw ? sharded : owned) += bytes;
      }
      const auto one_step = [&](int64_t step) {
        model.micro_batch(engine, step, world.rank());
        engine.step({.muon = 0.02, .adamw = 0.01});
        (void)engine.weights();
      };
      one_step(0);
      axis.clear_traffic();
      one_step(1);
      const auto mean = [&](const std::string& name) {
        const auto found = axis.traffic().find(name);
        at::Tensor bytes = at::full({1}, found == axis.traffic().end() ? 0.0 : found->second.bytes, at::kDouble);
        world.all().sum(bytes, "test").wait();
        return bytes.item<double>() / 2;
      };
      const double half = 0.5;
      if (mesh.shard == 2) {
        EXPECT_EQ(mean("reduce in the row/exchange"), (owned + sharded + replicated) * half);
        // Chunks are padded to whole blocks of 1024 elements.
        EXPECT_EQ(mean("acquire/broadcast"), owned * half);
        EXPECT_EQ(mean("acquire/all_gather"), (2 * 6 * 1024 + 2 * 1024) * 4 * half);
        EXPECT_EQ(mean("gather in the row/all_gather"), (2 * 2 * 1024) * 4 * half);
      } else {
        EXPECT_EQ(mean("reduce over the rows/exchange"), (owned + sharded + replicated) * half);
        EXPECT_EQ(mean("publish over the rows/broadcast"), owned * half);
        EXPECT_NEAR(mean("gather over the rows/all_gather"), (sharded + replicated) * half, 8);
      }
      EXPECT_EQ(mean("acquire/all_reduce"), 0);
    }
  });
}

}  // namespace
}  // namespace pacer::parallel
