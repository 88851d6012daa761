// Whole runs of a tiny draft on several ranks: what they end with does not depend on the mesh.
#include "pacer/train/train.h"

#include <algorithm>

#include <gmock/gmock.h>

#include <ATen/Parallel.h>

#include "pacer/base/error.h"
#include "pacer/base/json.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/parallel_draft.h"
#include "pacer/train/run_folder.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/train_runs.h"
#include "tests/support/files.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(TrainTogether, ExactRunsEndWithTheSameBitsOnEveryMesh) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = uneven_draft_recipe(folder.path());
  recipe.parallel.exact = true;
  run_on_ranks(on(recipe, 1, 1), folder.path() / "1x1");
  const Remains reference = remains_of(folder.path() / "1x1");
  EXPECT_GT(reference.tensors.size(), 30u);
  EXPECT_THAT(reference.metrics, HasSubstr("\"kind\":\"validation\""));
  for (const auto& [replicate, shard] : {std::pair{2, 1}, {1, 2}, {4, 1}, {2, 2}, {1, 4}}) {
    Recipe other = on(recipe, replicate, shard);
    other.parallel.free_weights = shard > 1;
    other.parallel.accumulation = shard == 2 ? "no_sync" : "reduce_each";
    other.parallel.unshard = shard == 4 ? "all_gather" : "broadcast";
    other.parallel.overlap = replicate != 4;
    const fs::path run = folder.path() / (std::to_string(replicate) + "x" + std::to_string(shard));
    SCOPED_TRACE(run.filename());
    run_on_ranks(other, run);
    expect_same(remains_of(run), reference);
  }
}

TEST(TrainTogether, ContinuesOnAnotherMeshWithTheSameBits) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = uneven_draft_recipe(folder.path());
  recipe.parallel.exact = true;
  run_on_ranks(on(recipe, 2, 1), folder.path() / "whole");
  run_on_ranks(on(recipe, 1, 4), folder.path() / "parts", /*stop_after=*/5);
  EXPECT_EQ(fs::canonical(folder.path() / "parts/checkpoints/latest").filename(), "step_000005");
  run_on_ranks(on(recipe, 2, 2), folder.path() / "parts", /*stop_after=*/2);
  run_on_ranks(on(recipe, 1, 1), folder.path() / "parts");
  expect_same(remains_of(folder.path() / "parts"), remains_of(folder.path() / "whole"));
}

// A run that ends with a step of fewer micro-batches than there are ranks.
TEST(TrainTogether, TheLastStepMayLeaveRanksWithoutWork) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = uneven_draft_recipe(folder.path());
  recipe.parallel.exact = true;
  recipe.schedule.steps.reset();
  recipe.schedule.epochs = 1.05;  // 21 rows, four a step
  run_on_ranks(on(recipe, 1, 1), folder.path() / "1x1");
  run_on_ranks(on(recipe, 4, 1), folder.path() / "4x1");
  expect_same(remains_of(folder.path() / "4x1"), remains_of(folder.path() / "1x1"));
}

// The path of one process without the section computes the same: it only adds in another order.
TEST(TrainTogether, AgreesWithOneProcessThatTrainsAlone) {
  for (const char* method : {"dspark", "dflash"}) {
    for (const char* normalisation : {"supervised_weight", "per_micro_batch"}) {
      SCOPED_TRACE(std::string(method) + ", " + normalisation);
      const pacer::test::TemporaryFolder folder;
      Recipe recipe = uneven_draft_recipe(folder.path());
      recipe.draft.method = method;
      recipe.loss.normalisation = normalisation;
      if (recipe.draft.method == "dflash") {
        recipe.draft.sample_from_anchor = false;
        recipe.loss.weights = "dpace";
        recipe.optimizer.routes = {{"norm.weight", "sharded_adamw"}};
      }
      recipe.optimizer.matrix = "adamw";
      recipe.optimizer.newton_schulz_dtype = OptimizerSection{}.newton_schulz_dtype;
      recipe.optimizer.epsilon = 1e-3;  // else a gradient of rounding errors is a whole step in its direction
      recipe.schedule.steps = 5;
      Recipe alone = recipe;
      alone.data.accumulation = 4;
      run_alone(alone, folder.path() / "alone");
      run_on_ranks(on(recipe, 2, 1), folder.path() / "2x1");
      expect_close_weights(folder.path() / "alone", folder.path() / "2x1", 1e-5, 1e-4);
      const Json a = read_json(folder.path() / "alone/checkpoints/latest/state.json"),
                 b = read_json(folder.path() / "2x1/checkpoints/latest/state.json");
      for (const char* count : {"step", "rows", "tokens", "blocks"}) EXPECT_EQ(a[count], b[count]) << count;
      EXPECT_NEAR(a["last_loss"].get<double>(), b["last_loss"].get<double>(), 1e-4);
      EXPECT_NEAR(a["validation_tau"].get<double>(), b["validation_tau"].get<double>(), 1e-4);
    }
  }
}

// The plan of rank 0 is everybody's, and measuring it leaves no trace in what is trained.
TEST(TrainTogether, ABudgetBecomesOnePlanOfAllRanks) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = on(uneven_draft_recipe(folder.path()), 1, 2);
  recipe.parallel.exact = true;
  recipe.schedule.steps.reset();
  recipe.schedule.time_budget_s = 20;
  recipe.schedule.budget_clock = "cpu";
  run_on_ranks(recipe, folder.path() / "budget", /*stop_after=*/1);
  const Json plan = read_json(folder.path() / "budget/plan.json");
  EXPECT_GT(plan["measured"]["step_s"].get<double>(), 0);
  const auto steps = plan["steps"].get<int64_t>();
  ASSERT_GT(steps, 2);
  run_on_ranks(recipe, folder.path() / "budget", /*stop_after=*/1);
  EXPECT_EQ(read_json(folder.path() / "budget/plan.json"), plan);
  recipe.schedule.time_budget_s.reset();
  recipe.schedule.steps = steps;
  run_on_ranks(recipe, folder.path() / "counted", /*stop_after=*/2);
  const Remains budget = checkpoint_remains(folder.path() / "budget/checkpoints/step_000002");
  EXPECT_GT(budget.tensors.size(), 30u);
  expect_same(budget, checkpoint_remains(folder.path() / "counted/checkpoints/step_000002"));
}

TEST(TrainTogether, ABudgetTooSmallEndsAllRanksAlike) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = on(uneven_draft_recipe(folder.path()), 2, 1);
  recipe.schedule.steps.reset();
  recipe.schedule.time_budget_s = 1e-3;
  const auto outcomes =
      parallel::outcomes_of_ranks(2, [&](parallel::World& world) { run_on(world, recipe, folder.path() / "run"); });
  EXPECT_THAT(outcomes[0].error, HasSubstr("loading, measuring and one step take"));
  EXPECT_EQ(outcomes[0].error, outcomes[1].error);
}

// With bf16 everywhere and messages of their own: it trains, and every rank says so.
TEST(TrainTogether, LearnsInBf16WithoutExactSums) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = on(test::tiny_recipe(folder.path()), 1, 2, 2);
  recipe.draft.dtype = "bf16";
  recipe.parallel.message_dtype = "bf16";
  recipe.parallel.free_weights = true;
  recipe.data.sequences = 2;
  recipe.schedule.steps = 40;
  parallel::run_ranks(2, [&](parallel::World& world) {
    const TrainResult result = run_on(world, recipe, folder.path() / "run");
    EXPECT_LT(*result.last_loss, 0.9 * *result.first_loss);
    EXPECT_EQ(result.rows, 40 * 4);
    EXPECT_EQ(best_draft(folder.path() / "run"), result.draft);
  });
}

// Rank 1 has rows without a supervised token in them, then nobody has any.
TEST(ParallelDraft, ARankMayHaveNothingSupervised) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = uneven_draft_recipe(folder.path());
  recipe.parallel.exact = true;
  std::vector<data::TokenRow> rows = test::tiny_rows(4);
  for (const size_t row : {2, 3}) std::ranges::fill(rows[row].supervised, uint8_t{0});
  const auto shared = std::make_shared<const std::vector<data::TokenRow>>(rows);
  // Everything that the last of two steps leaves behind.
  const auto trained = [&](parallel::World& world, const Recipe& on_mesh, const fs::path& checkpoint) {
    device::Runtime runtime = device::Runtime::open("cpu");
    at::set_num_threads(1);
    const std::shared_ptr<const target::Target> target =
        target::Target::load(on_mesh.model.target, at::kFloat, runtime);
    const draft::DraftConfig config = draft_config(on_mesh, target->config(), rows);
    const draft::LossOptions loss = loss_options(on_mesh);
    const auto draft = draft::DraftTraining::create(config, loss, target, 3, at::kFloat, runtime);
    FeatureSource features(target, shared, config.target_layer_ids, {});
    Ranks ranks(on_mesh.parallel, "cpu", &world);
    ParallelDraft together(on_mesh, loss, ranks, *draft);
    const auto step = [&](const Window& window, int64_t number) {
      const WindowPlan plan = together.plan(features, window, number);
      return together.step(plan, batches_when_needed(features, plan), 5e-3);
    };
    const ParallelDraft::Update update = step({{{0}, {1}, {2}, {3}}, 0, 4}, 1);
    EXPECT_GT(update.terms.blocks, 0);
    EXPECT_GT(update.gradient_norm, 0);
    together.save(checkpoint / "first", {}, {});
    EXPECT_EQ(step({{{2}, {3}, {2}, {3}}, 4, 8}, 2).terms.blocks, 0);
    together.save(checkpoint / "second", {}, {});
  };
  parallel::run_ranks(1, [&](parallel::World& world) { trained(world, on(recipe, 1, 1), folder.path() / "alone"); });
  parallel::run_ranks(2, [&](parallel::World& world) { trained(world, on(recipe, 2, 1), folder.path() / "2x1"); });
  const Remains first = checkpoint_remains(folder.path() / "alone/first");
  expect_same(checkpoint_remains(folder.path() / "2x1/first"), first);
  // A step without a supervised slot changes nothing, counters included.
  expect_same(checkpoint_remains(folder.path() / "2x1/second"), first);
}

std::string refusal(parallel::World& world, const Recipe& recipe, const fs::path& folder) {
  try {
    run_on(world, recipe, folder);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_FALSE(error.hint().empty());
    return error.what();
  }
  return "accepted";
}

TEST(TrainTogether, RefusesWhatDoesNotFitTheRanks) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = uneven_draft_recipe(folder.path());
  recipe.schedule.steps = 2;
  recipe.schedule.warmup_steps = 0;
  run_on_ranks(on(recipe, 2, 1), folder.path() / "run");
  parallel::run_ranks(2, [&](parallel::World& world) {
    EXPECT_THAT(refusal(world, recipe, folder.path() / "other"), HasSubstr("this is one of 2 processes"));
    EXPECT_THAT(refusal(world, on(recipe, 4, 1), folder.path() / "other"), HasSubstr("4x1"));
    EXPECT_THAT(refusal(world, on(recipe, 2, 1, 8), folder.path() / "run"),
                HasSubstr("data.accumulation times the ranks was 4, is 8"));
    Recipe exact = on(recipe, 2, 1);
    exact.parallel.exact = true;
    EXPECT_THAT(refusal(world, exact, folder.path() / "run"), HasSubstr("parallel.exact was false, is true"));
  });
  EXPECT_FALSE(fs::exists(folder.path() / "other"));
  parallel::run_ranks(1, [&](parallel::World& world) {
    EXPECT_THAT(refusal(world, recipe, folder.path() / "run"), HasSubstr("continued without one"));
  });
}

TEST(TrainTogether, ALossThatIsNotFiniteEndsAllRanksAlike) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = on(test::tiny_recipe(folder.path()), 2, 1);
  recipe.optimizer.learning_rate = 1;
  recipe.optimizer.clip = 0;
  recipe.optimizer.rates = {{"*", 1000}};
  recipe.optimizer.weight_decay = 10;
  recipe.schedule.steps = 400;
  recipe.schedule.shape = "constant";
  const auto outcomes =
      parallel::outcomes_of_ranks(2, [&](parallel::World& world) { run_on(world, recipe, folder.path() / "run"); });
  EXPECT_THAT(outcomes[0].error, HasSubstr("not finite"));
  EXPECT_EQ(outcomes[0].error, outcomes[1].error);
}

}  // namespace
}  // namespace pacer::train
