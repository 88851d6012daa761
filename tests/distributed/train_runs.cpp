#include "tests/distributed/train_runs.h"

#include <algorithm>
#include <fstream>
#include <vector>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/logging.h"
#include "pacer/base/random.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/train/recipe_reader.h"
#include "tests/distributed/ranks.h"
#include "tests/support/tensors.h"
#include "tests/train/tiny.h"

namespace pacer::train {

namespace fs = std::filesystem;

namespace {

// Rows of very different lengths, one in three with two answer tokens and so with a single slot to learn.
void write_uneven_rows(const fs::path& file) {
  std::vector<data::TokenRow> rows = pacer::train::test::tiny_rows(26);
  for (size_t i = 0; i < rows.size(); i += 3) {
    data::TokenRow& row = rows[i];
    size_t answer = 0;
    while (row.supervised[answer] == 0) ++answer;
    row.ids.resize(answer + 2), row.supervised.resize(answer + 2);
  }
  pacer::train::test::write_rows(file, rows);
}

}  // namespace

Recipe uneven_draft_recipe(const fs::path& folder) {
  Recipe recipe = pacer::train::test::tiny_recipe(folder);
  write_uneven_rows(folder / "rows.jsonl");
  recipe.data.sequences = 1;
  recipe.data.validation_rows = 6;
  recipe.draft.vocabulary = 60;
  recipe.optimizer.matrix = "muon";
  recipe.optimizer.rest = "adamw";
  recipe.optimizer.routes = {{"markov_head.*", "sharded_adamw"}, {"norm.weight", "sharded_adamw"}};
  recipe.optimizer.newton_schulz_dtype = "f32";
  recipe.optimizer.clip = 0.5;
  recipe.schedule.steps = 10;
  recipe.schedule.warmup_steps = 2;
  recipe.validation.every = 4;
  recipe.checkpoint.every = 4;
  recipe.logging.every = 3;
  recipe.logging.tensorboard = false;
  recipe.features.memory_mb = 1;
  return recipe;
}

Recipe small_language_model_recipe(const fs::path& folder) {
  const RandomStream random(5, Purpose::test);
  std::string text;
  for (uint64_t i = 0; i < 2500; ++i) text += static_cast<char>('a' + (i + random.below(i, 3)) % 20);
  write_file(folder / "text.txt", text);
  Recipe recipe;
  recipe.method = "causal_lm";
  recipe.language_model.text = (folder / "text.txt").string();
  recipe.language_model.length = 16;
  recipe.language_model.layers = 2, recipe.language_model.hidden = 24, recipe.language_model.intermediate = 40;
  recipe.language_model.heads = 4, recipe.language_model.kv_heads = 2;
  recipe.data.sequences = 2;
  recipe.optimizer.matrix = "muon";
  recipe.optimizer.rest = "sharded_adamw";
  recipe.optimizer.routes = {{"*norm*", "adamw"}};
  recipe.optimizer.newton_schulz_dtype = "f32";
  recipe.optimizer.learning_rate = 5e-3;
  recipe.optimizer.clip = 0.5;
  recipe.schedule.steps = 8;
  recipe.schedule.warmup_steps = 2;
  recipe.validation.every = 4;
  recipe.validation.rows = 7;  // the last batch is short
  recipe.checkpoint.every = 4;
  recipe.logging.every = 3;
  recipe.logging.tensorboard = false;
  recipe.seed = 3;
  return recipe;
}

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

parallel::RankSetup on_device_of(const Recipe& recipe) {
  return {.device = recipe.device == Recipe{}.device ? std::string() : recipe.device,
          .through_host = recipe.parallel.collectives == "host"};
}

void run_on_ranks(const Recipe& recipe, const fs::path& folder, int64_t stop_after) {
  const auto body = [&](parallel::World& world) {
    const TrainResult result = run_on(world, recipe, folder, stop_after);
    EXPECT_EQ(result.finished, stop_after == 0);
    EXPECT_TRUE(fs::exists(result.draft / "config.json"));
  };
  parallel::run_ranks(recipe.parallel.ranks(), body, on_device_of(recipe));
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
  const auto body = [&](parallel::World&) {
    TrainOptions options;
    options.run = folder;
    set_log_level(LogLevel::off);
    EXPECT_TRUE(train(resolve(recipe, "test"), options).finished);
  };
  parallel::run_ranks(1, body, on_device_of(recipe));
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
