// Entries of docs/known_failures.md about what a run decides when it begins.
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/json.h"
#include "pacer/base/logging.h"
#include "pacer/draft/config.h"
#include "pacer/train/optimizer_setup.h"
#include "pacer/train/recipe_reader.h"
#include "pacer/train/train.h"
#include "tests/support/files.h"
#include "tests/train/tiny.h"

namespace pacer::train {
namespace {

namespace fs = std::filesystem;

TEST(TrainReports, Report41EveryRunHasTheVocabularyThatItAskedFor) {
  const pacer::test::TemporaryFolder folder;
  Recipe recipe = test::tiny_recipe(folder.path());
  recipe.schedule.steps = 1;
  set_log_level(LogLevel::off);
  const auto trained = [&](int64_t vocabulary, const fs::path& run) {
    recipe.draft.vocabulary = vocabulary;
    TrainOptions options;
    options.run = run;
    const fs::path draft = train(resolve(recipe, "test"), options).draft;
    return read_json(draft / "config.json");
  };
  // The rows stay where they are, and so does everything that a run might leave beside them.
  const Json sixteen = trained(16, folder.path() / "a"), thirty_two = trained(32, folder.path() / "b"),
             all = trained(0, folder.path() / "c");
  EXPECT_EQ(sixteen.at("draft_vocab_size"), 16);
  EXPECT_EQ(thirty_two.at("draft_vocab_size"), 32);
  EXPECT_EQ(all.value("draft_vocab_size", all.at("vocab_size").get<int64_t>()), all.at("vocab_size"));
  try {
    trained(32, folder.path() / "a");
    FAIL() << "a run went on with another vocabulary";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("draft.vocabulary was 16, is 32"), std::string::npos) << error.what();
  }
  set_log_level(LogLevel::info);
}

TEST(TrainReports, Report47TheTableShowsRouteRateAndDecayOfEveryParameter) {
  OptimizerSection section;
  section.matrix = "muon", section.rest = "adamw";
  section.learning_rate = 2e-3, section.matrix_learning_rate = 2e-2;
  section.weight_decay = 0.01, section.matrix_weight_decay = 0.1;
  section.update_scale = "original";
  section.rates = {{"markov_head.*", 5}};
  section.decays = {{"*norm*", 0}};
  const std::vector<std::pair<std::string, std::vector<int64_t>>> parameters = {
      {"embed_tokens.weight", {64, 16}},  {"fc.weight", {16, 48}},
      {"lm_head.weight", {64, 16}},       {"markov_head.markov_w1.weight", {64, 8}},
      {"markov_head.markov_w2", {8, 64}}, {"norm.weight", {16}}};
  const auto routed = optim::route_parameters(parameters, optimizer_options(section).routes);
  EXPECT_EQ(route_page(routed, section),
            "embed_tokens.weight           64x16  adamw          built-in rule '*embed*': embeddings and heads, rate "
            "0.002, decay 0.01\n"
            "fc.weight                     16x48  muon           a matrix, scale 1.000, rate 0.02, decay 0.1\n"
            "lm_head.weight                64x16  adamw          built-in rule '*_head.*': embeddings and heads, rate "
            "0.002, decay 0.01\n"
            "markov_head.markov_w1.weight  64x8   adamw          built-in rule '*_head.*': embeddings and heads, rate "
            "0.01, decay 0.01\n"
            "markov_head.markov_w2         8x64   adamw          built-in rule '*_head.*': embeddings and heads, rate "
            "0.01, decay 0.01\n"
            "norm.weight                   16     adamw          a vector, rate 0.002, decay 0\n");
}

}  // namespace
}  // namespace pacer::train
