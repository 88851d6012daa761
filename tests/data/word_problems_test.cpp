#include "pacer/data/word_problems.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "pacer/base/error.h"

namespace pacer::data {
namespace {

constexpr uint64_t kSeed = 7;

std::pair<int64_t, int64_t> pair_of(const WordProblem& problem) { return std::minmax(problem.first, problem.second); }

TEST(WordProblems, SplitsShareNeitherNamesNorPairsOfNumbers) {
  std::set<std::string> names;
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (const WordProblem& problem : word_problems(kSeed, Split::train, 3000)) {
    names.insert(problem.name);
    pairs.insert(pair_of(problem));
  }
  for (const WordProblem& problem : word_problems(kSeed, Split::held_out, 400)) {
    EXPECT_FALSE(names.contains(problem.name)) << problem.text;
    EXPECT_FALSE(pairs.contains(pair_of(problem))) << problem.text;
  }
}

TEST(WordProblems, SayWhatTheyAreAboutInTheirText) {
  for (const WordProblem& problem : word_problems(kSeed, Split::train, 500)) {
    EXPECT_NE(problem.text.find(problem.name), std::string::npos) << problem.text;
    EXPECT_EQ(problem.text.find_first_of("{}"), std::string::npos) << problem.text;
    const bool shares = problem.pattern == "sharing";  // there the second number is asked for
    EXPECT_NE(problem.text.find(std::to_string(problem.first)), std::string::npos) << problem.text;
    EXPECT_NE(problem.text.find(std::to_string(shares ? problem.first * problem.second : problem.second)),
              std::string::npos)
        << problem.text;
  }
}

TEST(WordProblems, UseEveryTemplateAndRepeatNoText) {
  std::map<std::string, int> by_pattern;
  std::set<std::string> texts;
  const auto problems = word_problems(kSeed, Split::train, 1200);
  for (const WordProblem& problem : problems) {
    ++by_pattern[problem.pattern];
    texts.insert(problem.text);
  }
  EXPECT_EQ(texts.size(), problems.size());
  EXPECT_GE(word_problem_patterns().size(), 6u);
  for (const std::string& name : word_problem_patterns()) EXPECT_GT(by_pattern[name], 1200 / 40) << name;
}

TEST(WordProblems, ALongerListBeginsWithTheShorterOne) {
  const auto few = word_problems(kSeed, Split::train, 20), many = word_problems(kSeed, Split::train, 40);
  for (size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].text, many[i].text);
  EXPECT_NE(word_problems(kSeed + 1, Split::train, 1)[0].text, few[0].text);
}

TEST(WordProblems, RefuseAnImpossibleCount) {
  EXPECT_THROW(word_problems(kSeed, Split::train, -1), Error);
  EXPECT_THROW(word_problems(kSeed, Split::train, 1'000'000), Error);
}

}  // namespace
}  // namespace pacer::data
