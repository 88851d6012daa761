#include <sstream>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/cli/program.h"
#include "tests/cli/tiny_model.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

const std::string tiny = (test::source_dir() / "tests" / "bench" / "tiny.json").string();

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(BenchCommand, PrintsOneLinePerCaseAndDtype) {
  const Outcome outcome = pacer({"bench", "decode", "--case", "tiny", "--dtype", "f32,bf16", "--works", tiny});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<Json> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].at("dtype"), "f32");
  EXPECT_EQ(lines[1].at("dtype"), "bf16");
  EXPECT_GT(lines[1].at("tokens_per_cpu_s").get<double>(), 0);
}

TEST(BenchCommand, ACaseThatFailsIsALineWithAStatusAndAnExitCode) {
  const Outcome outcome = pacer({"bench", "decode", "--case", "tiny,long,huge", "--works", tiny, "--dtype", "f32"});
  EXPECT_EQ(outcome.exit_code, 7) << outcome.error;
  const std::vector<Json> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_FALSE(lines[0].contains("status"));
  EXPECT_EQ(lines[1].at("status"), "error") << "the case `long` has no room for its tokens";
  EXPECT_EQ(lines[2].at("status"), "oom") << "a table of 2 GB where 1 GB is allowed";
  EXPECT_NE(outcome.error.find("positions for 256"), std::string::npos) << outcome.error;

  const Outcome late =
      pacer({"bench", "decode", "--case", "tiny", "--works", tiny, "--steps", "1000000", "--timeout", "1"});
  EXPECT_EQ(lines_of(late.out).at(0).at("status"), "timeout") << late.out;
}

TEST(BenchCommand, CheckSaysHowFarLogitsLieFromF32) {
  const test::TemporaryFolder folder;
  write_tiny_model(folder.path() / "model");
  OrderedJson tokenizer = byte_tokenizer();
  tokenizer["pre_tokenizer"]["use_regex"] = true;  // as GPT-2's, which GGUF has a name for
  write_file(folder.path() / "model" / "tokenizer.json", tokenizer.dump());
  const std::string file = (folder.path() / "model.gguf").string();
  ASSERT_EQ(
      pacer({"model", "convert", (folder.path() / "model").string(), file, "--to", "gguf", "--type", "f32"}).exit_code,
      0);
  const Outcome outcome =
      pacer({"bench", "gguf", "--case", "tiny", "--works", tiny, "--model", file, "--dtype", "f32,bf16", "--check"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<Json> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  const Json exact = lines[0].at("work").at("logits_from_f32"), rounded = lines[1].at("work").at("logits_from_f32");
  EXPECT_EQ(exact.at("tokens"), 256);
  EXPECT_EQ(exact.at("relative_l2"), 0.0) << "the same weights, computed the same way";
  EXPECT_GT(rounded.at("relative_l2").get<double>(), 1e-4);
  EXPECT_LT(rounded.at("relative_l2").get<double>(), 0.1)
      << "some per cent in a model of random weights; other logits: 1.4";
  EXPECT_GE(rounded.at("relative_l2_worst_row").get<double>(), rounded.at("relative_l2").get<double>());
}

TEST(BenchCommand, StartsItselfToMeasureAStart) {
  const Outcome outcome = pacer({"bench", "coldstart", "--works", tiny, "--dtype", "f32", "--steps", "1"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<Json> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_TRUE(lines[0].at("dtype").is_null());
  EXPECT_GT(lines[0].at("median_s").get<double>(), 0);
  EXPECT_EQ(lines[1].at("dtype"), "f32");
  EXPECT_GT(lines[1].at("median_s").get<double>(), lines[1].at("work").at("step_s").get<double>());
  EXPECT_GT(lines[1].at("loss").get<double>(), 0);
}

TEST(BenchCommand, StartsTheRanksOfATraining) {
  const Outcome outcome = pacer({"bench", "dist", "--case", "pair,pair-vs-adamw", "--works", tiny, "--dtype", "f32"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<Json> lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u) << "one rank speaks for both: " << outcome.out;
  const Json& work = lines[0].at("work");
  EXPECT_EQ(work.at("world"), 2);
  EXPECT_GT(work.at("bytes_per_rank_and_step").get<double>(), 0);
  // Lines are printed with six digits.
  EXPECT_NEAR(work.at("predicted").at("bytes_per_rank_and_step").get<double>() /
                  work.at("bytes_per_rank_and_step").get<double>(),
              1, 1e-5);
  EXPECT_GT(work.at("predicted").at("step").get<double>(), 0);
  EXPECT_GT(lines[1].at("work").at("orthogonalise_cpu_s").get<double>(), 0);
  const Outcome alone = pacer({"bench", "dist", "--case", "pair", "--works", tiny, "--dtype", "f32", "--in-process"});
  EXPECT_NE(alone.exit_code, 0);
  EXPECT_NE(alone.error.find("pacer launch -n 2"), std::string::npos) << alone.error;
}

TEST(BenchCommand, APageBringsItsRoofline) {
  const test::TemporaryFolder folder;
  const std::string page = (folder.path() / "bench.html").string();
  const Outcome outcome =
      pacer({"bench", "decode", "--case", "tiny", "--works", tiny, "--dtype", "f32", "--html", page});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::vector<Json> lines = lines_of(outcome.out);
  EXPECT_EQ(lines.front().at("bench"), "decode");
  EXPECT_EQ(lines.back().at("bench"), "roofline");
  const std::string text = read_file(page);
  EXPECT_NE(text.find("<h2>decode</h2>"), std::string::npos) << text;
  EXPECT_NE(text.find("class=\"bar\""), std::string::npos) << "a figure beside its limit";
}

TEST(BenchCommand, ListsWhatThereIs) {
  const Outcome person = pacer({"bench", "--list"});
  EXPECT_NE(person.out.find("dspark_train\n  small-a64 "), std::string::npos) << person.out;
  EXPECT_NE(person.out.find("eagle3_train  (not in this version)\n"), std::string::npos) << person.out;
  const Json list = Json::parse(pacer({"bench", "--list", "--json"}).out);
  EXPECT_EQ(list.at(0).at("bench"), "dspark_train");
  EXPECT_EQ(list.at(0).at("available"), true);
}

TEST(BenchCommand, NamesThatDoNotExistAreUsageErrorsBeforeAnythingRuns) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"bench", "decoding"},
                                                    {"bench", "decode", "--case", "smol"},
                                                    {"bench", "eagle3_train"},
                                                    {"bench"},
                                                    {"bench", "decode", "--all"},
                                                    {"bench", "decode", "--dtype", "f16"},
                                                    {"bench", "decode", "--threads", "0"}}) {
    const Outcome outcome = pacer(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments.back() << outcome.error;
    EXPECT_EQ(outcome.out, "");
  }
}

}  // namespace
}  // namespace pacer::cli
