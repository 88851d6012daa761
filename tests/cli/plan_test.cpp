#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/cli/program.h"
#include "tests/support/files.h"

namespace pacer::cli {
namespace {

const std::string untied = test::golden("llama_tiny/default").string();
const std::string tied = test::golden("llama_tiny/tied_sharded").string();

double messages(const Outcome& outcome, const std::string& name) {
  EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
  return Json::parse(outcome.out).at("messages").at(name).at("messages").get<double>();
}

TEST(PlanCommand, DrawsTheScheduleOfAModel) {
  const test::TemporaryFolder folder;
  const std::string picture = (folder.path() / "schedule.svg").string();
  const Outcome outcome =
      pacer({"plan", "--model", untied, "--mesh", "2x2", "--free-weights", "--schedule-svg", picture});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.error;
  const std::string svg = read_file(picture);
  for (const char* text : {">forward 4<", ">backward 4<", ">update 5<", ">layers.2<", ">lm_head<", ">acquire<",
                           ">reduce in the row<", ">reduce over the rows<", ">publish over the rows<"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(svg, read_file(test::source_dir() / "docs" / "images" / "schedule.svg")) << "the picture in the manual";
}

// A model without a head reads its embedding at the end again: with freed weights that is one more message.
TEST(PlanCommand, ATiedEmbeddingIsReadTwice) {
  const auto plan = [](const std::string& model, const char* weights) {
    std::vector<std::string> words = {"plan", "--model", model, "--mesh", "1x2", "--json"};
    if (*weights != 0) words.emplace_back(weights);
    return pacer(words);
  };
  // Kept: embedding (and head) once. Freed: the embedding once in each direction, and again where it is the head, whose
  // weights stay from the last forward to the first backward; an own head once.
  EXPECT_EQ(messages(plan(tied, ""), "acquire/all_gather"), 1);
  EXPECT_EQ(messages(plan(tied, "--free-weights"), "acquire/all_gather"), 3);
  EXPECT_EQ(messages(plan(untied, ""), "acquire/all_gather"), 2);
  EXPECT_EQ(messages(plan(untied, "--free-weights"), "acquire/all_gather"), 3);
}

}  // namespace
}  // namespace pacer::cli
