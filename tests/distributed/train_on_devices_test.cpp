// Whole runs whose ranks compute on a device each. The simulated NPU's hazard checker and rules are on all the time.
#include <unistd.h>

#include <functional>
#include <vector>

#include <gmock/gmock.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/rand.h>
#include <c10/util/Exception.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/logging.h"
#include "pacer/train/recipe_reader.h"
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

// LibTorch's own random numbers: a state per rank, its own seed where the recipe says so.
TEST(TrainOnDevices, RandomNumbersOfEveryRankGoOnWhereTheCheckpointLeftThem) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = on(on_devices(small_language_model_recipe(folder.path())), 2, 1);
  recipe.parallel.generator_stride = 5;
  const auto draws = [&](const fs::path& run, const char* name, int64_t stop_after) {
    parallel::run_ranks(
        2,
        [&](parallel::World& world) {
          run_on(world, recipe, run, stop_after);
          const at::Tensor drawn = at::rand({8}, at::TensorOptions().device(world.place())).to(at::kCPU);
          write_file(folder.path() / (name + std::to_string(world.rank())), c10::str(drawn));
        },
        on_device_of(recipe));
    return read_file(folder.path() / (name + std::string("0"))) + read_file(folder.path() / (name + std::string("1")));
  };
  const auto of_rank = [&](const char* name, int rank) {
    return read_file(folder.path() / (name + std::to_string(rank)));
  };
  // Nothing in training draws from them: what follows a run shows what they were set to.
  const std::string begun = draws(folder.path() / "run", "begun", /*stop_after=*/2);
  EXPECT_NE(of_rank("begun", 0), of_rank("begun", 1));
  EXPECT_TRUE(fs::exists(folder.path() / "run/checkpoints/latest/generator-00002-of-00002.safetensors"));
  EXPECT_EQ(draws(folder.path() / "run", "continued", /*stop_after=*/1), begun);
  recipe.parallel.generator_stride = 0;
  draws(folder.path() / "alike", "alike", /*stop_after=*/1);
  EXPECT_EQ(of_rank("alike", 0), of_rank("alike", 1));
}

// Runs on two ranks, of which rank 1 does something after its second step.
std::vector<parallel::RankOutcome> outcomes_when_rank_1(const Recipe& recipe, const fs::path& folder,
                                                        const std::function<void(const parallel::World&)>& does) {
  return parallel::outcomes_of_ranks(
      2,
      [&](parallel::World& world) {
        int64_t steps = 0;
        TrainOptions options;
        options.run = folder;
        options.world = &world;
        options.stop_requested = [&] {
          if (++steps == 2 && world.rank() == 1) does(world);
          return false;
        };
        set_log_level(LogLevel::off);
        train(resolve(recipe, "test"), options);
      },
      std::chrono::seconds(60), std::chrono::seconds(120), on_device_of(recipe));
}

TEST(TrainOnDevices, MemoryThatEndsInAStepIsExplainedOnItsRankAndEndsTheOther) {
  for (const bool draft : {false, true}) {
    const pacer::test::TemporaryFolder folder;
    const Recipe recipe =
        on(on_devices(draft ? uneven_draft_recipe(folder.path()) : small_language_model_recipe(folder.path())), 2, 1);
    std::vector<at::Tensor> hoard;
    const auto outcomes = outcomes_when_rank_1(recipe, folder.path() / "run", [&](const parallel::World& world) {
      const auto bytes = at::TensorOptions().dtype(at::kByte).device(world.place());
      const auto takes = [&](int64_t size) {
        try {
          hoard.push_back(at::empty({size}, bytes));
          return true;
        } catch (const c10::OutOfMemoryError&) {
          return false;
        }
      };
      for (int64_t size = int64_t{1} << 34; size >= 512; size /= 2) {
        while (takes(size)) continue;
      }
    });
    EXPECT_THAT(outcomes[1].error, HasSubstr("the memory of simnpu:1 ended with"));
    EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1 closed the connection"));
  }
}

TEST(TrainOnDevices, ARankThatDiesIsAnErrorOfTheOthersThatSaysWhereItWas) {
  const pacer::test::TemporaryFolder folder;
  const Recipe recipe = on(on_devices(small_language_model_recipe(folder.path())), 2, 1);
  const auto outcomes = outcomes_when_rank_1(recipe, folder.path() / "run", [](const parallel::World&) { ::_exit(7); });
  EXPECT_EQ(outcomes[1].exit_code, 7);
  EXPECT_THAT(outcomes[0].error, ::testing::AllOf(HasSubstr("rank 1 closed the connection"), HasSubstr("rank 1")));
}

}  // namespace
}  // namespace pacer::train
