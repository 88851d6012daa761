// Whole runs of a small language model.
#include "pacer/train/causal_lm.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/device/runtime.h"
#include "pacer/target/target.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/text_rows.h"
#include "tests/support/files.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

// Sentences of a small grammar: there is something to learn, and it does not repeat.
std::string text_of(uint64_t words) {
  const std::vector<std::vector<std::string>> parts = {{"the", "one", "every", "no"},
                                                       {"cat", "engine", "river", "number"},
                                                       {"moves", "counts", "finds", "leaves"},
                                                       {"the", "one", "every", "no"},
                                                       {"stone", "mouse", "answer", "letter"}};
  const RandomStream random(7, Purpose::test);
  std::string text;
  for (uint64_t i = 0; i < words; ++i) {
    const auto& choices = parts[i % parts.size()];
    text += choices[random.below(i, choices.size())] + (i % parts.size() == 4 ? ".\n" : " ");
  }
  return text;
}

Recipe small_recipe(const fs::path& folder) {
  write_file(folder / "text.txt", text_of(4000));
  Recipe recipe;
  recipe.method = "causal_lm";
  recipe.language_model.text = (folder / "text.txt").string();
  recipe.language_model.length = 32;
  recipe.language_model.layers = 2, recipe.language_model.hidden = 32, recipe.language_model.intermediate = 64;
  recipe.language_model.heads = 4, recipe.language_model.kv_heads = 2;
  recipe.data.sequences = 4;
  recipe.optimizer.matrix = "muon";
  recipe.optimizer.learning_rate = 5e-3;
  recipe.schedule.steps = 12;
  recipe.schedule.warmup_steps = 2;
  recipe.validation.rows = 16;
  recipe.logging.every = 3;
  recipe.checkpoint.every = 4;
  recipe.seed = 3;
  return recipe;
}

TrainResult run(const Recipe& recipe, const fs::path& folder, int64_t stop_after = 0) {
  int64_t steps = 0;
  TrainOptions options;
  options.run = folder;
  options.stop_requested = [&steps, stop_after] { return ++steps == stop_after; };
  return train(resolve(recipe, "test"), options);
}

std::string content(const fs::path& file) { return read_file(file); }

TEST(CausalLm, StoppedAndContinuedEndsWithTheSameBits) {
  for (const char* matrix : {"muon", "adamw"}) {
    const pacer::test::TemporaryFolder temporary;
    Recipe recipe = small_recipe(temporary.path());
    recipe.optimizer.matrix = matrix;
    const TrainResult whole = run(recipe, temporary.path() / "whole");
    EXPECT_EQ(run(recipe, temporary.path() / "parts", /*stop_after=*/5).step, 5);
    const TrainResult parts = run(recipe, temporary.path() / "parts");
    EXPECT_TRUE(parts.finished);
    for (const char* name : {"config.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
      EXPECT_EQ(content(whole.checkpoint / name), content(parts.checkpoint / name)) << matrix << " " << name;
    }
    EXPECT_EQ(whole.validation_loss, parts.validation_loss);
    EXPECT_EQ(whole.last_loss, parts.last_loss);
    EXPECT_EQ(run(recipe, temporary.path() / "parts").validation_loss, parts.validation_loss);  // nothing left to do
    TrainOptions again;
    again.run = temporary.path() / "parts";  // by the recipe that the run wrote down, as without -c
    EXPECT_EQ(train(recipe_of_run(again.run), again).validation_loss, parts.validation_loss);
  }
}

TEST(CausalLm, AccumulationIsTheSameStep) {
  const pacer::test::TemporaryFolder temporary;
  Recipe recipe = small_recipe(temporary.path());
  recipe.optimizer.newton_schulz_dtype = "f32";
  recipe.schedule.steps = 3;
  const double together = *run(recipe, temporary.path() / "together").validation_loss;
  recipe.data.sequences = 2, recipe.data.accumulation = 2;
  EXPECT_NEAR(*run(recipe, temporary.path() / "apart").validation_loss, together, 1e-4);
}

// The checkpoint is a model: the target's own forward gives the loss that training says.
TEST(CausalLm, WritesAModelThatCanBeLoaded) {
  const pacer::test::TemporaryFolder temporary;
  const Recipe recipe = small_recipe(temporary.path());
  const TrainResult result = run(recipe, temporary.path() / "run");
  device::Runtime runtime = device::Runtime::open("cpu");
  const auto model = target::Target::load(result.checkpoint, at::kFloat, runtime);
  const TextRows rows = read_text_rows(*recipe.language_model.text, nullptr, 32, 0.1);
  double sum = 0;
  for (size_t row = 0; row < 16; ++row) {
    const std::vector<int64_t> inputs(rows.validation[row].begin(), rows.validation[row].end() - 1);
    const auto output = model->forward(target::TokenBatch::single(inputs), {});
    const at::Tensor logs = model->logits(output.last).log_softmax(-1);
    for (int64_t i = 0; i < 32; ++i) sum -= logs[i][rows.validation[row][static_cast<size_t>(i) + 1]].item<double>();
  }
  EXPECT_NEAR(sum / (16 * 32), *result.validation_loss, 1e-4);
}

TEST(CausalLm, StartsFromWeights) {
  const pacer::test::TemporaryFolder temporary;
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  fs::path gguf;
  for (const auto& entry : fs::recursive_directory_iterator(package)) {
    if (entry.path().extension() == ".gguf") gguf = entry.path();
  }
  ASSERT_FALSE(gguf.empty());
  Recipe recipe = small_recipe(temporary.path());
  write_file(temporary.path() / "text.txt", text_of(120));
  recipe.language_model = LanguageModelSection{};
  recipe.language_model.text = (temporary.path() / "text.txt").string();
  recipe.language_model.start = "weights";
  recipe.language_model.length = 16;
  recipe.model.target = gguf.string();
  recipe.data.sequences = 2;
  recipe.schedule.steps = 1;
  recipe.schedule.warmup_steps = 0;
  recipe.optimizer.matrix = "adamw";
  recipe.optimizer.learning_rate = 1e-6;
  recipe.validation.rows = 1;
  recipe.checkpoint.every = 0;
  const TrainResult result = run(recipe, temporary.path() / "run");
  // A trained model knows English words, a new one would be at log(49152) = 10.8.
  EXPECT_LT(*result.first_loss, 8.0);
}

TEST(TextRows, AreNeighboursThatShareOneToken) {
  const pacer::test::TemporaryFolder temporary;
  write_file(temporary.path() / "t.txt", "abcdefghijk");
  const TextRows rows = read_text_rows(temporary.path() / "t.txt", nullptr, 2, 0.2);
  EXPECT_EQ(rows.tokens, 11);
  ASSERT_EQ(rows.train.size(), 4u);
  ASSERT_EQ(rows.validation.size(), 1u);
  EXPECT_EQ(rows.train[0], (std::vector<int64_t>{'a', 'b', 'c'}));
  EXPECT_EQ(rows.train[1], (std::vector<int64_t>{'c', 'd', 'e'}));
  EXPECT_EQ(rows.validation[0], (std::vector<int64_t>{'i', 'j', 'k'}));
  EXPECT_THROW(read_text_rows(temporary.path() / "t.txt", nullptr, 11, 0.2), Error);
  EXPECT_THROW(read_text_rows(temporary.path() / "t.txt", nullptr, 6, 0.2), Error);
  EXPECT_THROW(read_text_rows(temporary.path() / "none.txt", nullptr, 2, 0.2), Error);
}

// What docs/muon.md reports at full length, in the size of a test: the shipped recipe for 100 steps, smaller.
TEST(CausalLm, MuonLearnsFasterThanAdamW) {
  const pacer::test::TemporaryFolder temporary;
  const auto held_out = [&](const std::string& matrix) {
    ResolvedRecipe resolved = read_recipe(
        pacer::test::source_dir() / "recipes" / "tiny_lm.yaml",
        {"optimizer.matrix=" + matrix, "schedule.steps=100", "language_model.layers=2", "language_model.hidden=96",
         "language_model.intermediate=256", "language_model.length=64", "data.sequences=8", "validation.rows=64",
         "language_model.text=\"" + (pacer::test::source_dir() / "data/bench/text.txt").string() + "\""});
    TrainOptions options;
    options.run = temporary.path() / matrix;
    return *train(resolved, options).validation_loss;
  };
  const double muon = held_out("muon"), adamw = held_out("adamw");
  EXPECT_LT(muon, adamw);
  EXPECT_LT(muon, std::log(256.0) - 2);
}

}  // namespace
}  // namespace pacer::train
