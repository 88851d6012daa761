// Entries of docs/known_failures.md about training on ranks: shapes that do not divide, states, who computes what.
#include <algorithm>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/parallel/checkpoint.h"
#include "pacer/parallel/engine.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_model.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

at::Tensor random_tensor(const std::vector<int64_t>& sizes, int64_t step, int64_t sample, double scale) {
  at::Tensor tensor = at::empty(sizes, at::kFloat);
  const RandomStream stream(29, Purpose::test, static_cast<uint64_t>(step), static_cast<uint64_t>(sample));
  stream.fill_normal(tensor.mutable_data_ptr<float>(), static_cast<size_t>(tensor.numel()));
  return tensor.mul_(scale);
}

struct Part {
  std::string name;
  std::vector<int64_t> sizes;
  Route route = Route::muon;
  at::ScalarType dtype = at::kFloat;
};
using Parts = std::vector<Part>;

// Parameters without a model: the gradient of a leaf is a function of (step, leaf, parameter).
class Training {
 public:
  Training(World& world, const Parts& parts, const EngineOptions& options) : parts_(parts) {
    std::vector<EngineParameter> parameters;
    for (size_t i = 0; i < parts.size(); ++i) {
      const at::Tensor values = random_tensor(parts[i].sizes, 1000, static_cast<int64_t>(i), 0.2);
      weights_.push_back(values.to(parts[i].dtype).contiguous().requires_grad_(true));
      parameters.push_back({.name = parts[i].name, .weight = weights_[i], .route = parts[i].route});
    }
    engine_ =
        std::make_unique<Engine>(world, std::move(parameters), std::vector<Segment>(), std::vector<size_t>(), options);
  }

  Engine& engine() { return *engine_; }

  void step(int64_t number) {
    const int64_t count = engine_->options().reduction.micro_batches;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t leaf = engine_->groups().data_rank * count + k;
      engine_->acquire();
      for (size_t i = 0; i < parts_.size(); ++i) {
        const int64_t sample = leaf * 1000 + static_cast<int64_t>(i);
        weights_[i].mutable_grad() = random_tensor(parts_[i].sizes, number, sample, 1.0).to(parts_[i].dtype);
      }
      engine_->finish_backward(1.0, 2);
    }
    engine_->step({.muon = 0.02, .adamw = 0.01});
  }

 private:
  Parts parts_;
  std::vector<at::Tensor> weights_;
  std::unique_ptr<Engine> engine_;
};

// Masters, states, counters and the weights that the forward reads, after so many steps.
std::map<std::string, at::Tensor> trained(World& world, const Parts& parts, const EngineOptions& options,
                                          int64_t steps) {
  Training training(world, parts, options);
  for (int64_t step = 0; step < steps; ++step) training.step(step);
  return state_of(training.engine());
}

void expect_same(const std::map<std::string, at::Tensor>& found, const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(test::same_bits(found.at(name), tensor)) << name;
}

std::map<std::string, at::Tensor> alone(const Parts& parts, int64_t leaves, int64_t steps) {
  World one({}, {});
  return trained(one, parts, small_options({1, 1}, leaves, true), steps);
}

// Every mesh of these ranks ends with the bits of one process, kept weights or freed.
void expect_as_alone(int64_t ranks, const std::vector<Mesh>& meshes, const std::vector<Parts>& models, int64_t steps) {
  run_ranks(ranks, [&](World& world) {
    for (const Parts& parts : models) {
      const auto reference = alone(parts, ranks, steps);
      for (const Mesh& mesh : meshes) {
        for (const bool freed : {false, true}) {
          SCOPED_TRACE(std::to_string(parts.size()) + " parameters on " + mesh.text() + (freed ? " freed" : " kept"));
          EngineOptions options = small_options(mesh, 1, true);
          options.free_weights = freed;
          expect_same(trained(world, parts, options, steps), reference);
        }
      }
    }
  });
}

TEST(RankReports, Report71AnyNumberOfMatricesOnFourRanks) {
  std::vector<Parts> models;
  for (const int count : {0, 1, 3, 4, 5}) {
    models.push_back({{"norm.weight", {8}, Route::adamw}});
    for (int i = 0; i < count; ++i) models.back().push_back({"layers." + std::to_string(i) + ".weight", {8, 8}});
  }
  expect_as_alone(4, {{1, 4}, {2, 2}}, models, 2);
}

Parts uneven() {
  Parts parts;
  for (const Route route : {Route::muon, Route::sharded_adamw}) {
    for (const int64_t rows : {6, 7, 72}) {
      parts.push_back({"layers." + std::to_string(rows) + "." + optim::name_of(route), {rows, 16}, route});
    }
  }
  return parts;
}

TEST(RankReports, Report72RowsThatNoNumberOfRanksDivides) {
  expect_as_alone(4, {{1, 4}}, {uneven()}, 2);
  expect_as_alone(3, {{1, 3}, {3, 1}}, {uneven()}, 2);
}

TEST(RankReports, Report73FewerRowsThanRanksAndTwoDtypesInALayer) {
  Parts parts;
  for (const Route route : {Route::muon, Route::sharded_adamw}) {
    for (const int64_t rows : {1, 2, 3, 4, 5}) {
      const at::ScalarType dtype = rows % 2 == 0 ? at::kBFloat16 : at::kFloat;
      parts.push_back({"layers.0.of_" + std::to_string(rows) + "." + optim::name_of(route), {rows, 8}, route, dtype});
    }
  }
  expect_as_alone(4, {{1, 4}, {2, 2}}, {parts}, 2);
}

TEST(RankReports, Report74MatricesAcrossBordersStayTheSameForTenSteps) {
  for (const Route route : {Route::muon, Route::sharded_adamw}) {
    expect_as_alone(4, {{4, 1}, {2, 2}, {1, 4}}, {{{"a", {5, 8}, route}, {"b", {5, 8}, route}}}, 10);
  }
}

// Who keeps the momentum of a matrix is who orthogonalises it.
TEST(RankReports, Report76EveryMatrixIsOrthogonalisedOnceInTheWholeJob) {
  run_ranks(4, [](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({2, 2}, 1, true));
    model.micro_batch(engine, 0, world.rank());
    engine.step({.muon = 0.02, .adamw = 0.01});
    int64_t matrices = 0, mine = 0;
    for (const Engine::StateTensor& tensor : engine.state_tensors()) {
      if (tensor.kind != Engine::StateTensor::Kind::momentum) continue;
      ++matrices;
      at::Tensor keepers = at::full({1}, engine.held(tensor) ? 1 : 0, at::kLong);
      mine += keepers.item<int64_t>();
      world.all().sum(keepers, "test").wait();
      EXPECT_EQ(keepers.item<int64_t>(), 1) << tensor.name;
    }
    EXPECT_EQ(matrices, 3);
    EXPECT_LT(mine, matrices) << "and one rank has not all of them";
  });
}

// A world of one rank, met in a store and not, in every mode: what one process without any of it ends with.
TEST(RankReports, Report78OneRankInEveryModeIsOneProcess) {
  run_ranks(1, [](World& launched) {
    World plain({}, {});
    const Trail reference = pacer::parallel::alone({}, 2, 2, small_options({1, 1}, 2, true));
    for (World* world : {&launched, &plain}) {
      for (const Accumulation form : {Accumulation::reduce_each, Accumulation::no_sync, Accumulation::replicate_gate}) {
        for (const bool freed : {false, true}) {
          for (const Unshard unshard : {Unshard::broadcast, Unshard::all_gather}) {
            SCOPED_TRACE(std::string(name_of(form)) + (freed ? " freed " : " kept ") + name_of(unshard));
            EngineOptions options = small_options({1, 1}, 2, true);
            options.reduction.accumulation = form;
            options.free_weights = freed;
            options.unshard = unshard;
            pacer::parallel::expect_same(train_small(*world, options, {}, 2), reference);
          }
        }
      }
    }
  });
}

Parts matrix_and_nine_norms(Route matrix) {
  Parts parts = {{"layers.0.weight", {64, 16}, matrix}};
  for (int i = 0; i < 9; ++i) {
    parts.push_back({"norms." + std::to_string(i), {16}, i % 2 == 0 ? Route::adamw : Route::sharded_adamw});
  }
  return parts;
}

TEST(RankReports, Report62StatesTravelToAnyNumberOfRanks) {
  const test::TemporaryFolder folder;
  constexpr int64_t kLeaves = 12;
  const Parts parts = matrix_and_nine_norms(Route::muon);
  const auto go_on = [&](int64_t ranks, const std::string& from, const std::string& to) {
    run_ranks(ranks, [&](World& world) {
      Training training(world, parts, small_options({1, ranks}, kLeaves / ranks, true));
      if (from.empty()) {
        for (const int64_t step : {0, 1}) training.step(step);
      } else {
        load_checkpoint(training.engine(), folder.path() / from);
        training.step(2);
        expect_same(state_of(training.engine()), alone(parts, kLeaves, 3));
      }
      if (!to.empty()) save_checkpoint(training.engine(), folder.path() / to);
    });
  };
  go_on(4, "", "of_4");
  go_on(2, "", "of_2");
  go_on(3, "of_4", "");
  go_on(2, "of_4", "");
  go_on(3, "of_2", "");
  go_on(1, "of_4", "");
  // What another route or another model left is an error, and no zeros take the place of what is missing.
  Parts more = parts;
  more.push_back({"norms.9", {16}, Route::adamw});
  for (const auto& [other, named] :
       {std::pair{matrix_and_nine_norms(Route::adamw), "'layers.0.weight.momentum'"}, {more, "norms.9"}}) {
    const auto outcomes = outcomes_of_ranks(3, [&, &wanted = other](World& world) {
      Training training(world, wanted, small_options({1, 3}, 4, true));
      load_checkpoint(training.engine(), folder.path() / "of_4");
    });
    for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_TRUE(std::ranges::any_of(outcomes, [&, part = named](const RankOutcome& outcome) {
      return outcome.error.find(part) != std::string::npos;
    })) << outcomes[0].error;
  }
}

// Zero-length tensors in every collective, and uneven pieces, a rank with nothing to send among them, in every dtype.
TEST(RankReports, Report80CollectivesOfEveryDtypeAndSize) {
  run_ranks(3, [](World& world) {
    ProcessGroup& all = world.all();
    const int64_t me = world.rank();
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      SCOPED_TRACE(toString(dtype));
      for (const int64_t n : {0, 1, 257}) {
        at::Tensor tensor = at::full({n}, me + 1, dtype);
        all.broadcast(tensor, 2, "test").wait();
        EXPECT_TRUE(test::same_bits(tensor, at::full({n}, 3, dtype)));
        all.sum(tensor, "test").wait();
        EXPECT_TRUE(test::same_bits(tensor, at::full({n}, 9, dtype)));
        at::Tensor gathered = at::empty({3 * n}, dtype);
        all.all_gather(gathered, at::full({n}, me + 1, dtype), "test").wait();
        for (int64_t r = 0; r < 3; ++r) {
          EXPECT_TRUE(test::same_bits(gathered.slice(0, r * n, (r + 1) * n), at::full({n}, r + 1, dtype)));
        }
      }
      // Rank s sends s (r + 1) elements to rank r: rank 0 sends none.
      std::vector<int64_t> sent, received;
      for (int64_t r = 0; r < 3; ++r) sent.push_back(me * (r + 1)), received.push_back(r * (me + 1));
      at::Tensor out = at::empty({3 * (me + 1)}, dtype);
      all.exchange(out, received, at::full({6 * me}, 10 * me, dtype), sent, "test").wait();
      EXPECT_TRUE(test::same_bits(out.slice(0, 0, me + 1), at::full({me + 1}, 10, dtype)));
      EXPECT_TRUE(test::same_bits(out.slice(0, me + 1), at::full({2 * (me + 1)}, 20, dtype)));
      at::Tensor nothing = at::empty({0}, dtype);
      all.exchange(nothing, {0, 0, 0}, nothing, {0, 0, 0}, "test").wait();
    }
  });
}

}  // namespace
}  // namespace pacer::parallel
