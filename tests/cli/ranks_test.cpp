// Training as several ranks, from the command line.
#include <filesystem>

#include <gmock/gmock.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

TEST(TrainOnRanks, OneRankSpeaksAndTheRunGoesOnElsewhere) {
  const test::TemporaryFolder folder;
  const fs::path recipe = folder.path() / "recipe.yaml", run = folder.path() / "run";
  write_tiny_model(folder.path() / "model");
  write_training_rows(folder.path() / "rows.jsonl", 12);
  write_tiny_recipe(recipe, folder.path() / "model", folder.path() / "rows.jsonl", 4);
  const auto on_two = [&](const std::vector<std::string>& rest) {
    std::vector<std::string> words = {"launch", "-n", "2", "--", PACER_PROGRAM, "train", "--run", run.string()};
    words.insert(words.end(), rest.begin(), rest.end());
    return pacer(words);
  };

  const Outcome unsaid = on_two({"-c", recipe.string()});
  EXPECT_EQ(unsaid.exit_code, 2);
  EXPECT_THAT(unsaid.error, HasSubstr("parallel.replicate=2"));
  EXPECT_FALSE(fs::exists(run));

  const Outcome trained = on_two({"-c", recipe.string(), "--json", "parallel.replicate=2"});
  ASSERT_EQ(trained.exit_code, 0) << trained.error;
  const Json result = Json::parse(trained.out);  // throws when two ranks print
  EXPECT_TRUE(result.at("finished").get<bool>());
  EXPECT_EQ(result.at("step"), 4);
  EXPECT_TRUE(fs::exists(fs::path(result.at("draft").get<std::string>()) / "config.json"));
  // "device ..." and "train: 4 steps ..." stand there once.
  EXPECT_EQ(trained.error.find("train: 4 steps"), trained.error.rfind("train: 4 steps"));
  EXPECT_EQ(read_file(run / "metrics.jsonl").find("\"kind\":\"start\""),
            read_file(run / "metrics.jsonl").rfind("\"kind\":\"start\""));

  // Without -c by the recipe of the run, which names two ranks.
  EXPECT_EQ(on_two({"-q"}).exit_code, 0);
  const Outcome one = pacer({"train", "--run", run.string()});
  EXPECT_EQ(one.exit_code, 2);
  EXPECT_THAT(one.error, HasSubstr("2x1"));
  const Outcome half = pacer({"train", "--run", run.string()}, {"RANK=0"});
  EXPECT_EQ(half.exit_code, 2);
  EXPECT_THAT(half.error, HasSubstr("RANK is set and WORLD_SIZE is not"));
}

}  // namespace
}  // namespace pacer::cli
