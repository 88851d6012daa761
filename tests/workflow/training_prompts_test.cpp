#include "pacer/workflow/training_prompts.h"

#include <map>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "pacer/base/json.h"

namespace pacer::workflow {
namespace {

std::vector<Json> rows_of(const std::string& lines) {
  std::vector<Json> rows;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) rows.push_back(Json::parse(line));
  return rows;
}

TEST(TrainingPrompts, AloneTheyAreWordProblems) {
  const auto rows = rows_of(training_prompt_lines(TrainingPrompts::word_problems, 1));
  EXPECT_GE(rows.size(), 6032u);
  for (const Json& row : rows) EXPECT_EQ(row.at("kind"), "word_problems");
}

TEST(TrainingPrompts, AnyBeginningOfTheMixtureHasTheSameShares) {
  const auto rows = rows_of(training_prompt_lines(TrainingPrompts::mixed, 1));
  ASSERT_GE(rows.size(), 6032u);
  std::map<std::string, double> counts;
  std::set<std::string> ids, texts;
  for (size_t i = 0; i < rows.size(); ++i) {
    counts[rows[i].at("kind")] += 1;
    ids.insert(rows[i].at("id")), texts.insert(rows[i].at("turns").at(0));
    if (i < 200 || i % 500 != 0) continue;
    const auto n = static_cast<double>(i + 1);
    EXPECT_NEAR(counts["word_problems"] / n, 0.4, 0.02) << i;
    EXPECT_NEAR(counts["chat"] / n, 0.3, 0.02) << i;
    EXPECT_NEAR(counts["code"] / n, 0.15, 0.02) << i;
    EXPECT_NEAR(counts["questions"] / n, 0.15, 0.02) << i;
  }
  EXPECT_EQ(ids.size(), rows.size());
  EXPECT_EQ(texts.size(), rows.size());
}

TEST(TrainingPrompts, HeldOutProblemsAreNotAmongThem) {
  std::set<std::string> trained;
  for (const Json& row : rows_of(training_prompt_lines(TrainingPrompts::mixed, 3)))
    trained.insert(row.at("turns").at(0));
  const auto held_out = rows_of(held_out_problem_lines(3));
  EXPECT_EQ(held_out.size(), static_cast<size_t>(kHeldOutProblems));
  for (const Json& row : held_out) EXPECT_FALSE(trained.contains(row.at("turns").at(0)));
}

}  // namespace
}  // namespace pacer::workflow
