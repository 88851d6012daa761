#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

// Counts, the mean, and the bytes of what a draft reads of every token: five layers and the last one, in bf16.
TEST(DataCheckCommand, CountsTokensAndTheBytesOfTheirFeatures) {
  const test::TemporaryFolder folder;
  const auto rows = folder.path() / "some rows.jsonl";
  write_file(rows, R"({"id": "a", "prompt_ids": [1, 2, 3], "output_ids": [4, 5]})"
                   "\n"
                   R"({"id": "b", "prompt_ids": [1], "output_ids": [4, 5, 6, 7, 8]})"
                   "\nnot json\n");
  const auto target = test::golden("dspark/target");
  const Outcome outcome =
      pacer({"data", "check", rows.string(), "--minimum-supervised", "2", "--target", target.string(), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const Json report = Json::parse(outcome.out);
  EXPECT_EQ(report.at("rows"), 2);
  EXPECT_EQ(report.at("tokens"), 3 + 2 + 1 + 5);
  EXPECT_EQ(report.at("mean").get<double>(), 11 / 2.0);
  EXPECT_EQ(report.at("dropped"), 1);
  const int64_t hidden = read_json(target / "config.json").at("hidden_size");
  EXPECT_EQ(report.at("feature_bytes"), 11 * (5 + 1) * hidden * 2);
  const Outcome text = pacer({"data", "check", rows.string(), "--minimum-supervised", "2"});
  EXPECT_THAT(text.out, testing::HasSubstr("mean 5.5"));
  EXPECT_THAT(text.out, testing::Not(testing::HasSubstr("features")));
}

}  // namespace
}  // namespace pacer::cli
