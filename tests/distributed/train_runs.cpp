#include "tests/distributed/train_runs.h"

#include <fstream>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/train/recipe_reader.h"
#include "tests/distributed/ranks.h"
#include "tests/support/tensors.h"

namespace pacer::train {

namespace fs = std::filesystem;

Recipe on(Recipe recipe, int64_t replicate, int64_t shard, int64_t leaves) {
  recipe.parallel.replicate = replicate, recipe.parallel.shard = shard;
  recipe.data.accumulation = leaves / (replicate * shard);
  return recipe;
}

TrainResult run_on(parallel::World& world, const Recipe& recipe, const fs::path& folder, int64_t stop_after) {
  int64_t steps = 0;
  TrainOptions options;
  options.run = folder;
  options.world = &world;
  // Only one rank hears of it.
  const bool hears = world.rank() + 1 == world.size();
  options.stop_requested = [&steps, stop_after, hears] { return ++steps == stop_after && hears; };
  set_log_level(LogLevel::off);
  return train(resolve(recipe, "test"), options);
}

void run_on_ranks(const Recipe& recipe, const fs::path& folder, int64_t stop_after) {
  parallel::run_ranks(recipe.parallel.ranks(), [&](parallel::World& world) {
    const TrainResult result = run_on(world, recipe, folder, stop_after);
    EXPECT_EQ(result.finished, stop_after == 0);
    EXPECT_TRUE(fs::exists(result.draft / "config.json"));
  });
}

Remains checkpoint_remains(const fs::path& checkpoint) {
  Remains remains;
  for (const fs::path& folder : {checkpoint, checkpoint / "states"}) {
    const auto source = formats::open_safetensors(folder);
    for (const std::string& name : source->names()) {
      remains.tensors[name] = pacer::test::to_tensor(source->tensor(name));
    }
  }
  remains.state = read_file(checkpoint / "state.json");
  remains.counters = read_json(checkpoint / "manifest.json").at("details").at("engine").at("updates");
  return remains;
}

Remains remains_of(const fs::path& run) {
  Remains remains = checkpoint_remains(fs::canonical(run / "checkpoints/latest"));
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    Json record = Json::parse(line);
    if (record["kind"] != "train" && record["kind"] != "validation") continue;
    for (const char* time : {"wall_s", "cpu_s", "target_cpu_s"}) record.erase(time);
    remains.metrics += record.dump() + "\n";
  }
  return remains;
}

void expect_same(const Remains& a, const Remains& b) {
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.metrics, b.metrics);
  EXPECT_EQ(a.counters, b.counters);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << name;
    EXPECT_TRUE(pacer::test::same_bits(tensor, b.tensors.at(name))) << name;
  }
}

void run_alone(const Recipe& recipe, const fs::path& folder) {
  parallel::run_ranks(1, [&](parallel::World&) {
    TrainOptions options;
    options.run = folder;
    set_log_level(LogLevel::off);
    EXPECT_TRUE(train(resolve(recipe, "test"), options).finished);
  });
}

void expect_close_weights(const fs::path& expected, const fs::path& found, double absolute, double relative) {
  const auto a = formats::open_safetensors(expected / "checkpoints/latest"),
             b = formats::open_safetensors(found / "checkpoints/latest");
  ASSERT_EQ(a->names(), b->names());
  for (const std::string& name : a->names()) {
    EXPECT_TRUE(pacer::test::close(pacer::test::to_tensor(b->tensor(name)), pacer::test::to_tensor(a->tensor(name)),
                                   absolute, relative))
        << name;
  }
}

}  // namespace pacer::train
