#include "pacer/data/everyday_prompts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "pacer/base/error.h"
#include "pacer/base/resources.h"
#include "pacer/data/prompts.h"

namespace pacer::data {
namespace {

constexpr uint64_t kSeed = 7;

std::set<std::string> words_of(const std::string& text) {
  std::set<std::string> words;
  std::string word;
  for (const char c : text + " ") {
    if (std::isalnum(static_cast<unsigned char>(c))) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    } else if (!word.empty()) {
      words.insert(word), word.clear();
    }
  }
  return words;
}

double likeness(const std::set<std::string>& a, const std::set<std::string>& b) {
  std::vector<std::string> shared;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(shared));
  return static_cast<double>(shared.size()) / static_cast<double>(a.size() + b.size() - shared.size());
}

TEST(EverydayPrompts, NoneOfThemIsAskedInAnEvaluation) {
  std::vector<std::pair<std::string, std::set<std::string>>> asked;
  for (const char* kind : {"chat", "code", "questions", "reasoning", "summary", "translation", "writing"}) {
    for (const Prompt& prompt : read_prompts(resource("data/prompts") / (std::string(kind) + ".jsonl")).prompts) {
      asked.emplace_back(prompt.turns.at(0), words_of(prompt.turns[0]));
    }
  }
  ASSERT_GT(asked.size(), 90u);
  for (const uint64_t seed : {kSeed, uint64_t{1}}) {  // 1: the quickstart's
    for (const EverydayPrompt& prompt : everyday_prompts(seed, 4200)) {
      const auto words = words_of(prompt.text);
      for (const auto& [text, other] : asked) {
        EXPECT_LT(likeness(words, other), 0.7) << prompt.text << "\n" << text;
      }
    }
  }
}

TEST(EverydayPrompts, HaveTheirKindsAndNoTextTwice) {
  std::map<std::string, int> kinds;
  std::set<std::string> texts, ids;
  for (const EverydayPrompt& prompt : everyday_prompts(kSeed, 6000)) {
    ++kinds[prompt.kind];
    texts.insert(prompt.text), ids.insert(prompt.id);
    EXPECT_EQ(prompt.text.find_first_of("{}"), std::string::npos) << prompt.text;
    EXPECT_EQ(prompt.id.find(prompt.kind), 0u);
  }
  EXPECT_EQ(texts.size(), 6000u);
  EXPECT_EQ(ids.size(), 6000u);
  EXPECT_EQ(kinds, (std::map<std::string, int>{{"chat", 3000}, {"code", 1500}, {"questions", 1500}}));
}

TEST(EverydayPrompts, ALongerListBeginsWithTheShorterOne) {
  const auto few = everyday_prompts(kSeed, 20), many = everyday_prompts(kSeed, 40);
  for (size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].text, many[i].text);
  EXPECT_NE(everyday_prompts(kSeed + 1, 1)[0].text, few[0].text);
  EXPECT_THROW(everyday_prompts(kSeed, -1), Error);
  EXPECT_THROW(everyday_prompts(kSeed, 6'001), Error);
}

}  // namespace
}  // namespace pacer::data
