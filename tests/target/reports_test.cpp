// Entries of docs/known_failures.md about targets.
#include <fstream>

#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/base/logging.h"
#include "pacer/target/target.h"
#include "tests/support/files.h"

namespace pacer::target {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Loaded {
  std::unique_ptr<Target> target;
  std::string heard;
  std::string error;
};

// A golden checkpoint whose config.json says this about tying.
Loaded load(const std::string& golden, bool tied) {
  const test::TemporaryFolder folder;
  fs::copy(test::golden(golden), folder.path() / "m");
  Json config = read_json(folder.path() / "m" / "config.json");
  config["tie_word_embeddings"] = tied;
  std::ofstream(folder.path() / "m" / "config.json") << config;
  Loaded loaded;
  device::Runtime runtime = device::Runtime::open("cpu");
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) loaded.heard += line;
  });
  try {
    loaded.target = Target::load(folder.path() / "m", at::kFloat, runtime);
  } catch (const Error& error) {
    loaded.error = error.what();
  }
  set_log_sink({});
  return loaded;
}

TEST(TargetReports, Report57TheFlagDecidesAndADifferentHeadIsSaid) {
  const Loaded own = load("llama_tiny/default", false);
  ASSERT_NE(own.target, nullptr) << own.error;
  EXPECT_FALSE(at::equal(own.target->head_weight(), own.target->embedding_weight()));
  EXPECT_EQ(own.heard, "");

  const Loaded contradicted = load("llama_tiny/default", true);
  ASSERT_NE(contradicted.target, nullptr) << contradicted.error;
  EXPECT_TRUE(at::equal(contradicted.target->head_weight(), contradicted.target->embedding_weight()));
  EXPECT_THAT(contradicted.heard, HasSubstr("lm_head.weight differs from the embedding and is not used"));

  const Loaded tied = load("llama_tiny/tied_sharded", true);
  ASSERT_NE(tied.target, nullptr) << tied.error;
  EXPECT_TRUE(at::equal(tied.target->head_weight(), tied.target->embedding_weight()));
  EXPECT_EQ(tied.heard, "");

  EXPECT_THAT(load("llama_tiny/tied_sharded", false).error, HasSubstr("no tensor 'lm_head.weight'"));
}

}  // namespace
}  // namespace pacer::target
