#include "pacer/formats/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/formats/mutation.h"
#include "tests/support/files.h"

namespace pacer::formats {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;
using Pairs = std::vector<std::pair<std::string, std::string>>;
using Map = std::map<std::string, std::string>;

TEST(ModelFolder, ReadsACheckpointOfTheReference) {
  const ModelFolder model = ModelFolder::open(test::golden("llama_tiny/tied_sharded"));
  EXPECT_EQ(model.config(), Json(test::golden_json("llama_tiny/tied_sharded/config.json")));
  EXPECT_FALSE(model.is_wrapped());
  EXPECT_EQ(model.generation_config(), Json::object());
  EXPECT_TRUE(model.special_tokens().empty());
  EXPECT_TRUE(model.chat_templates().empty());
  EXPECT_TRUE(model.licence().empty());
  EXPECT_FALSE(model.tensors()->names().empty());
}

TEST(ModelFolder, UnwrapsTheLanguageModelOfAWrapper) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "config.json",
             R"({"model_type":"outer","eos_token_id":7,"tie_word_embeddings":true,"vision_config":{},)"
             R"("text_config":{"model_type":"llama","hidden_size":8,"tie_word_embeddings":false}})");
  const ModelFolder model = ModelFolder::open(folder.path());
  EXPECT_TRUE(model.is_wrapped());
  EXPECT_EQ(model.config(),
            (Json{{"model_type", "llama"}, {"hidden_size", 8}, {"tie_word_embeddings", false}, {"eos_token_id", 7}}));
}

TEST(ModelFolder, FindsTemplatesTokensAndLicenceWhereverTheyAre) {
  const test::TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& text) { write_file(folder.path() / name, text); };
  write("config.json", "{}");
  write("tokenizer_config.json",
        R"({"bos_token":null,"eos_token":{"content":"</s>","special":true},)"
        R"("chat_template":[{"name":"default","template":"A"},{"name":"tool_use","template":"B"}]})");
  write("special_tokens_map.json", R"({"bos_token":"<s>","eos_token":"other"})");
  write("README.md", "---\nlanguage:\n- en\nlicense: other\nlicense_name: 'our licence'\n---\nlicense: not this\n");
  write("LICENSE.txt", "text");
  const ModelFolder model = ModelFolder::open(folder.path());
  EXPECT_EQ(model.special_tokens(), (Map{{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
  EXPECT_EQ(model.chat_templates(), (Map{{"default", "A"}, {"tool_use", "B"}}));
  EXPECT_EQ(model.licence(),
            (Pairs{{"license", "other"}, {"license_name", "our licence"}, {"license_file", "LICENSE.txt"}}));
  write("chat_template.jinja", "C");
  EXPECT_EQ(model.chat_templates(), (Map{{"default", "C"}})) << "the file of its own goes first";
}

TEST(ModelFolder, RefusesWhatIsNotAModelFolder) {
  const test::TemporaryFolder folder;
  const auto refusal = [&](const fs::path& path) -> std::string {
    try {
      const ModelFolder model = ModelFolder::open(path);
      model.special_tokens(), model.chat_templates();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(refusal(folder.path() / "absent"), HasSubstr("not a folder"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("no config.json"));
  write_file(folder.path() / "config.json", "[]");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("not a JSON object"));
  write_file(folder.path() / "config.json", std::string(size_t{5} << 20, ' '));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("at most"));
  write_file(folder.path() / "config.json", R"({"text_config":[]})");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("text_config"));
  write_file(folder.path() / "config.json", "{}");
  EXPECT_EQ(refusal(folder.path()), "no error");
  write_file(folder.path() / "tokenizer_config.json", R"({"eos_token":5})");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("eos_token"));
  write_file(folder.path() / "tokenizer_config.json", R"({"chat_template":[{"name":"x"}]})");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("chat_template"));
}

TEST(ModelFolder, DamagedSettingsLoadOrThrowAndNothingElse) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "config.json", "{}");
  const std::string settings =
      R"({"bos_token":null,"eos_token":{"content":"</s>"},"chat_template":[{"name":"default","template":"A"}]})";
  test::for_mutations(settings, 500, settings.size(), [&](const fs::path& damaged) {
    fs::copy_file(damaged, folder.path() / "tokenizer_config.json", fs::copy_options::overwrite_existing);
    const ModelFolder model = ModelFolder::open(folder.path());
    return model.special_tokens().size() + model.chat_templates().size();
  });
}

}  // namespace
}  // namespace pacer::formats
