#include "pacer/data/generated_rows.h"

#include <gtest/gtest.h>

#include <fstream>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/data/rows.h"
#include "tests/support/files.h"

namespace pacer::data {
namespace {

const Json kSettings = {{"target", "toy"}, {"temperature", 0.0}};

GeneratedRow row(const std::string& id) {
  return {.id = id,
          .messages = OrderedJson::parse(R"([{"role": "user", "content": "hi"}])"),
          .prompt_ids = {1, 2},
          .output_ids = {3, 4, 5},
          .finish_reason = "stop",
          .text = "answer of " + id};
}

TEST(GeneratedRows, AreReadBackByTheTrainer) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  {
    GeneratedRows rows(path, kSettings);
    rows.append(row("a"));
    rows.append(row("b"));
    rows.sync();
  }
  const Rows read = read_rows(path, {});
  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_EQ(read.rows[1].id, "b");
  EXPECT_EQ(read.rows[1].ids, (std::vector<int64_t>{1, 2, 3, 4, 5}));
}

TEST(GeneratedRows, GoOnAfterAKillInTheMiddleOfALine) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  {
    GeneratedRows rows(path, kSettings);
    rows.append(row("a"));
    rows.append(row("b"));
  }
  const std::string whole = read_file(path);
  const size_t first_line = whole.find('\n') + 1;
  for (size_t cut = first_line; cut < whole.size(); ++cut) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
    GeneratedRows rows(path, kSettings);
    EXPECT_TRUE(rows.contains("a"));
    EXPECT_EQ(rows.answer("a"), "answer of a");
    ASSERT_FALSE(rows.contains("b")) << cut;
    EXPECT_EQ(rows.healed_bytes(), static_cast<int64_t>(cut - first_line));
    rows.append(row("b"));
    rows.sync();
    ASSERT_EQ(read_file(path), whole) << "cut at " << cut;
  }
}

std::string refusal(const std::filesystem::path& path, const Json& settings) {
  try {
    GeneratedRows rows(path, settings);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(GeneratedRows, RefuseOtherSettingsAndASecondWriter) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  Json other = kSettings;
  other["temperature"] = 1.0;
  {
    GeneratedRows rows(path, kSettings);
    // The second one comes before the first row: it must not leave its settings beside the rows of the first.
    EXPECT_NE(refusal(path, other).find("another process is writing"), std::string::npos);
    rows.append(row("a"));
    EXPECT_THROW(rows.append(row("a")), Error);
    EXPECT_NE(refusal(path, kSettings).find("another process is writing"), std::string::npos);
  }
  EXPECT_NE(refusal(path, other).find("begun with temperature = 0.0"), std::string::npos);
  EXPECT_EQ(refusal(path, kSettings), "accepted");
}

TEST(GeneratedRows, AnEmptyFileIsABeginning) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  std::ofstream(path) << "";  // killed before the settings were written
  GeneratedRows rows(path, kSettings);
  EXPECT_EQ(read_json(path.string() + ".meta.json"), kSettings);
}

TEST(GeneratedRows, FinishPutsThemIntoOneOrder) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl", straight = folder.path() / "straight.jsonl";
  const std::vector<std::string> order = {"a", "b", "missing", "c"};
  {
    GeneratedRows rows(straight, kSettings);
    for (const char* id : {"a", "b", "c", "of an older file"}) rows.append(row(id));
    rows.finish(order);
  }
  {
    GeneratedRows rows(path, kSettings);
    for (const char* id : {"c", "of an older file"}) rows.append(row(id));
  }
  {
    GeneratedRows rows(path, kSettings);
    for (const char* id : {"b", "a"}) rows.append(row(id));
    rows.finish(order);
  }
  EXPECT_EQ(read_file(path), read_file(straight));
  EXPECT_EQ(refusal(path, kSettings), "accepted");
}

TEST(GeneratedRows, RefuseAFileThatSomethingElseWrote) {
  const test::TemporaryFolder folder;
  const auto path = folder.path() / "rows.jsonl";
  std::ofstream(path) << "{\"text\": 1}\n";
  EXPECT_THROW(GeneratedRows(path, kSettings), Error);  // nothing says how it was made
}

}  // namespace
}  // namespace pacer::data
