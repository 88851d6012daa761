// Whole runs of a tiny language model on several ranks, whose engine works in segments.
#include <gmock/gmock.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/train_runs.h"
#include "tests/support/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

TEST(TrainLanguageModelTogether, ExactRunsEndWithTheSameBitsOnEveryMesh) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = small_language_model_recipe(folder.path());
  recipe.parallel.exact = true;
  run_on_ranks(on(recipe, 1, 1), folder.path() / "1x1");
  const Remains reference = remains_of(folder.path() / "1x1");
  EXPECT_THAT(reference.metrics, ::testing::HasSubstr("\"kind\":\"validation\""));
  for (const auto& [replicate, shard] : {std::pair{2, 1}, {1, 2}, {2, 2}, {1, 4}}) {
    Recipe other = on(recipe, replicate, shard);
    other.parallel.free_weights = shard > 1;
    other.parallel.accumulation = replicate == 2 ? "replicate_gate" : "reduce_each";
    const fs::path run = folder.path() / (std::to_string(replicate) + "x" + std::to_string(shard));
    SCOPED_TRACE(run.filename());
    run_on_ranks(other, run);
    expect_same(remains_of(run), reference);
  }
}

TEST(TrainLanguageModelTogether, ContinuesOnAnotherMeshWithTheSameBits) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = small_language_model_recipe(folder.path());
  recipe.parallel.exact = true;
  recipe.schedule.steps.reset();
  recipe.schedule.epochs = 0.5;  // the last step has fewer rows than the others
  run_on_ranks(on(recipe, 1, 1), folder.path() / "whole");
  Recipe freed = on(recipe, 1, 4);
  freed.parallel.free_weights = true;
  run_on_ranks(freed, folder.path() / "parts", /*stop_after=*/3);
  run_on_ranks(on(recipe, 2, 1), folder.path() / "parts");
  const Remains whole = remains_of(folder.path() / "whole");
  expect_same(remains_of(folder.path() / "parts"), whole);
  const Json state = parse_json(whole.state, "state.json");
  EXPECT_NE(state["rows"].get<int64_t>() % (4 * recipe.data.sequences), 0);
}

TEST(TrainLanguageModelTogether, AgreesWithOneProcessThatTrainsAlone) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = small_language_model_recipe(folder.path());
  recipe.optimizer.matrix = "adamw";
  recipe.optimizer.newton_schulz_dtype = OptimizerSection{}.newton_schulz_dtype;
  recipe.optimizer.epsilon = 1e-3;  // else a gradient of rounding errors is a whole step in its direction
  Recipe alone = recipe;
  alone.data.accumulation = 4;
  run_alone(alone, folder.path() / "alone");
  run_on_ranks(on(recipe, 1, 2), folder.path() / "1x2");
  expect_close_weights(folder.path() / "alone", folder.path() / "1x2", 1e-5, 1e-4);
}

}  // namespace
}  // namespace pacer::train
