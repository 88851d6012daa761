#include "pacer/data/prompts.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>

#include "tests/support/files.h"

namespace pacer::data {
namespace {

std::filesystem::path write(const test::TemporaryFolder& folder, const std::string& text) {
  const auto path = folder.path() / "prompts.jsonl";
  std::ofstream(path) << text;
  return path;
}

TEST(ReadPrompts, TakesEverySpellingOfAConversation) {
  const test::TemporaryFolder folder;
  const Prompts read = read_prompts(write(folder, R"({"id": "a", "messages": [{"role": "user", "content": "one"}]}
{"conversations": [{"from": "human", "value": "two"}, {"from": "gpt", "value": "old answer"}, {"from": "human", "value": "three"}]}

{"turns": ["four", "five"]}
{"prompt": "six", "tools": "[{\"name\": \"clock\"}]"}
{"messages": [{"role": "system", "content": "be short"}, {"role": "user", "content": "seven"}]}
)"));
  ASSERT_EQ(read.prompts.size(), 5u);
  EXPECT_EQ(read.problems.dropped(), 0);
  EXPECT_EQ(read.prompts[0].id, "a");
  EXPECT_EQ(read.prompts[1].turns, (std::vector<std::string>{"two", "three"}));
  EXPECT_EQ(read.prompts[1].id, "line-2");
  EXPECT_EQ(read.prompts[2].turns, (std::vector<std::string>{"four", "five"}));
  EXPECT_EQ(read.prompts[3].tools[0]["name"], "clock");
  EXPECT_EQ(read.prompts[4].system, "be short");
  // The old answer is not replayed; the new one stands between the turns.
  EXPECT_EQ(
      read.prompts[1].messages(1, {"new answer"}).dump(),
      R"([{"role":"user","content":"two"},{"role":"assistant","content":"new answer"},{"role":"user","content":"three"}])");
}

TEST(ReadPrompts, TakesAJsonListAsWell) {
  const test::TemporaryFolder folder;
  EXPECT_EQ(read_prompts(write(folder, R"( [{"turns": ["a"]}, {"turns": ["b"]}] )")).prompts.size(), 2u);
}

// Roles (S system, U user, A assistant, X unknown) -> turns that are left when cut, "" when nothing is.
TEST(ReadPrompts, CutsDropsOrStopsAtAnOrderViolation) {
  const std::map<char, std::string> roles = {{'S', "system"}, {'U', "user"}, {'A', "assistant"}, {'X', "narrator"}};
  const std::map<std::string, std::pair<bool, size_t>> cases = {
      {"UA", {true, 1}}, {"SUA", {true, 1}},  {"UAUA", {true, 2}}, {"AU", {false, 0}},   {"S", {false, 0}},
      {"", {false, 0}},  {"UUA", {false, 1}}, {"UAA", {false, 1}}, {"UAXU", {false, 1}}, {"UASU", {false, 1}}};
  for (const auto& [text, expected] : cases) {
    OrderedJson messages = OrderedJson::array();
    for (const char role : text) messages.push_back({{"role", roles.at(role)}, {"content", "x"}});
    const OrderedJson row = {{"messages", messages}};
    const test::TemporaryFolder folder;
    const auto path = write(folder, row.dump() + "\n{\"turns\": [\"always good\"]}\n");
    const auto& [valid, turns] = expected;

    const Prompts dropped = read_prompts(path, BadRowPolicy::drop);
    EXPECT_EQ(dropped.prompts.size(), valid ? 2u : 1u) << text;
    EXPECT_EQ(dropped.problems.dropped(), valid ? 0 : 1) << text;

    const Prompts cut = read_prompts(path, BadRowPolicy::truncate);
    EXPECT_EQ(cut.prompts.size(), turns > 0 ? 2u : 1u) << text;
    if (turns > 0) {
      EXPECT_EQ(cut.prompts[0].turns.size(), turns) << text;
    }
    EXPECT_EQ(cut.problems.dropped(), valid ? 0 : 1) << text;

    if (valid) {
      EXPECT_NO_THROW(read_prompts(path, BadRowPolicy::error)) << text;
    } else {
      EXPECT_THROW(read_prompts(path, BadRowPolicy::error), Error) << text;
    }
  }
}

TEST(ReadPrompts, NamesTheLineOfARowItCannotUse) {
  const test::TemporaryFolder folder;
  const auto path = write(folder, "{\"turns\": [\"a\"]}\n{\"turns\": [7]}\n{broken\n{\"text\": \"b\"}\n");
  const Prompts read = read_prompts(path);
  EXPECT_EQ(read.problems.lines_by_reason.at("content is not text"), std::vector<int64_t>{2});
  EXPECT_EQ(read.problems.lines_by_reason.at("not JSON"), std::vector<int64_t>{3});
  EXPECT_EQ(read.problems.lines_by_reason.at("no messages, conversations, turns or prompt"), std::vector<int64_t>{4});
  try {
    read_prompts(path, BadRowPolicy::error);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("prompts.jsonl:2"), std::string::npos) << error.what();
  }
}

TEST(ReadPrompts, RefusesAnIdThatOccursTwice) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(
      read_prompts(write(folder, "{\"id\": \"a\", \"turns\": [\"a\"]}\n{\"id\": \"a\", \"turns\": [\"b\"]}\n")), Error);
}

TEST(ReadPrompts, RefusesAFileWithoutPrompts) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(read_prompts(write(folder, "\n\n")), Error);
  EXPECT_THROW(read_prompts(folder.path() / "absent.jsonl"), Error);
}

TEST(ShippedPrompts, AreManyDistinctAndOfEightKinds) {
  std::map<std::string, int64_t> count;
  std::set<std::string> ids, texts;
  int64_t total = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::source_dir() / "data" / "prompts")) {
    if (entry.path().extension() != ".jsonl") continue;
    const Prompts read = read_prompts(entry.path(), BadRowPolicy::error);
    for (const Prompt& prompt : read.prompts) {
      ids.insert(prompt.id);
      texts.insert(prompt.turns.at(0));
      ++count[entry.path().stem().string()];
      ++total;
    }
  }
  EXPECT_GE(total, 80);
  EXPECT_EQ(static_cast<int64_t>(ids.size()), total);
  EXPECT_EQ(static_cast<int64_t>(texts.size()), total);
  EXPECT_EQ(count.size(), 8u);
  // The quickstart takes twenty of each of these.
  for (const char* kind : {"chat", "code", "questions"}) EXPECT_GE(count[kind], 20) << kind;
}

}  // namespace
}  // namespace pacer::data
