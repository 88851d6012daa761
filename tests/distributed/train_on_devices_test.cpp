// Whole runs whose ranks compute on a device each. The simulated NPU's hazard checker and rules are on all the time.
#include <gmock/gmock.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/distributed/train_runs.h"
#include "tests/support/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

Recipe on_devices(Recipe recipe) {
  recipe.device = "simnpu";
  recipe.parallel.exact = true;
  recipe.schedule.steps = 5;
  recipe.validation.every = 4;
  recipe.checkpoint.every = 3;
  return recipe;
}

// One rank with all leaves, two rows, and two ranks that share the weights.
void expect_same_bits_on_one_rank_and_two(const Recipe& recipe, const fs::path& folder) {
  run_on_ranks(on(recipe, 1, 1), folder / "1x1");
  const Remains reference = remains_of(folder / "1x1");
  EXPECT_THAT(reference.metrics, HasSubstr("\"kind\":\"validation\""));
  EXPECT_THAT(read_file(folder / "1x1/environment.json"), HasSubstr("simnpu"));
  run_on_ranks(on(recipe, 2, 1), folder / "2x1");
  expect_same(remains_of(folder / "2x1"), reference);
  Recipe shared = on(recipe, 1, 2);
  shared.parallel.free_weights = true;
  shared.parallel.accumulation = "no_sync";
  run_on_ranks(shared, folder / "1x2");
  expect_same(remains_of(folder / "1x2"), reference);
}

TEST(TrainOnDevices, ADraftEndsWithTheSameBitsOnOneRankAndTwo) {
  const pacer::test::TemporaryFolder folder;
  expect_same_bits_on_one_rank_and_two(on_devices(uneven_draft_recipe(folder.path())), folder.path());
}

TEST(TrainOnDevices, ALanguageModelEndsWithTheSameBitsOnOneRankAndTwo) {
  const pacer::test::TemporaryFolder folder;
  expect_same_bits_on_one_rank_and_two(on_devices(small_language_model_recipe(folder.path())), folder.path());
}

// Messages through host memory over Gloo change no bit.
TEST(TrainOnDevices, HostCollectivesGiveTheSameBits) {
  const pacer::test::TemporaryFolder folder;
  const Recipe recipe = on_devices(small_language_model_recipe(folder.path()));
  run_on_ranks(on(recipe, 2, 1), folder.path() / "device");
  Recipe staged = on(recipe, 2, 1);
  staged.parallel.collectives = "host";
  run_on_ranks(staged, folder.path() / "host");
  expect_same(remains_of(folder.path() / "host"), remains_of(folder.path() / "device"));
}

// With the plain path on both sides a run that changes its device half-way is close to one that never did.
void expect_continuation_on_the_host(Recipe recipe, const fs::path& folder) {
  recipe.optimizer.matrix = "adamw";
  recipe.optimizer.newton_schulz_dtype = OptimizerSection{}.newton_schulz_dtype;
  recipe.optimizer.epsilon = 1e-3;  // else a gradient of rounding errors is a whole step in its direction
  recipe.kernel_impl = recipe.attention_impl = "plain";
  Recipe host = recipe;
  host.device = "cpu";
  run_on_ranks(on(host, 2, 1), folder / "whole");
  run_on_ranks(on(recipe, 2, 1), folder / "parts", /*stop_after=*/3);
  EXPECT_EQ(fs::canonical(folder / "parts/checkpoints/latest").filename(), "step_000003");
  run_on_ranks(on(host, 1, 2), folder / "parts");
  expect_close_weights(folder / "whole", folder / "parts", 1e-5, 1e-4);
  const Json a = read_json(folder / "whole/checkpoints/latest/state.json"),
             b = read_json(folder / "parts/checkpoints/latest/state.json");
  for (const char* count : {"step", "rows", "tokens"}) EXPECT_EQ(a[count], b[count]) << count;
}

TEST(TrainOnDevices, ADraftGoesOnOnTheHost) {
  const pacer::test::TemporaryFolder folder;
  expect_continuation_on_the_host(on_devices(uneven_draft_recipe(folder.path())), folder.path());
}

TEST(TrainOnDevices, ALanguageModelGoesOnOnTheHost) {
  const pacer::test::TemporaryFolder folder;
  expect_continuation_on_the_host(on_devices(small_language_model_recipe(folder.path())), folder.path());
}

}  // namespace
}  // namespace pacer::train
