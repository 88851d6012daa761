// Entries of docs/known_failures.md about rows.
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/data/prompts.h"
#include "pacer/data/rows.h"
#include "tests/support/files.h"

namespace pacer::data {
namespace {

using Lines = std::map<std::string, std::vector<int64_t>>;

TEST(DataReports, Report6BadLinesAreCountedWithTheirNumbers) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "p.jsonl",
             "\xEF\xBB\xBF{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\r\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}\r\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}, "
             "{\"role\": \"assistant\", \"content\": \"e\"}]}\r\n"
             "{\"messages\": [{\"role\": \"user\", \"content\": \"f\"},]}\r\n"
             "{\"messages\": [{\"role\": \"critic\", \"content\": \"g\"}]}\r\n");
  const Prompts read = read_prompts(folder.path() / "p.jsonl");
  EXPECT_EQ(read.prompts.size(), 2u);
  EXPECT_EQ(read.problems.lines_by_reason,
            (Lines{{"two assistant messages in a row", {3}}, {"not JSON", {4}}, {"unknown role", {5}}}));
  try {
    read_prompts(folder.path() / "p.jsonl", BadRowPolicy::error);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), (folder.path() / "p.jsonl").string() + ":3: two assistant messages in a row");
  }
}

TEST(DataReports, Report7CuttingLeavesNoRowWithoutAnAnswer) {
  const test::TemporaryFolder folder;
  std::string lines;
  for (const int prompt : {13, 14, 15, 16, 17}) {
    lines += Json{{"id", std::to_string(prompt)},
                  {"prompt_ids", std::vector<int64_t>(static_cast<size_t>(prompt), 1)},
                  {"output_ids", {2, 3, 4, 5}}}
                 .dump() +
             "\n";
  }
  write_file(folder.path() / "rows.jsonl", lines);
  RowOptions options;
  options.max_length = 16;
  const Rows rows = read_rows(folder.path() / "rows.jsonl", options);
  ASSERT_EQ(rows.rows.size(), 2u) << "three and two answer tokens are left";
  EXPECT_EQ(rows.rows[0].ids.size(), 16u);
  EXPECT_EQ(rows.rows[0].ids.back(), 4) << "no terminator is put behind a cut answer";
  EXPECT_EQ(rows.problems.lines_by_reason, (Lines{{"fewer than 2 answer tokens in a row", {3, 4, 5}}}));
}

}  // namespace
}  // namespace pacer::data
