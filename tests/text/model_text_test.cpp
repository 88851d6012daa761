// Which of a folder's templates is its chat template.
#include "pacer/text/model_text.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

// A model folder with `config` as its tokenizer_config.json.
class Folder {
 public:
  explicit Folder(const std::string& config) {
    std::filesystem::copy_file(test::golden("tokenizers/tiny_qwen_style") / "tokenizer.json",
                               folder_.path() / "tokenizer.json");
    write_file(folder_.path() / "tokenizer_config.json", config);
  }
  std::filesystem::path path() const { return folder_.path(); }
  std::string source() const { return ModelText::load(path())->chat_template().source(); }

 private:
  test::TemporaryFolder folder_;
};

TEST(ModelText, AmongNamedTemplatesTheDefaultIsForChats) {
  EXPECT_EQ(Folder(R"({"chat_template": "one"})").source(), "one");
  EXPECT_EQ(Folder(R"({"chat_template": [{"name": "tool_use", "template": "tools"},
                                         {"name": "default", "template": "chat"}]})")
                .source(),
            "chat");
}

TEST(ModelText, EntriesOfOtherTypesAreReadOver) {
  EXPECT_EQ(Folder(R"({"chat_template": [7, null, {"name": null, "template": "a"}, {"template": "b"},
                                         {"name": 1, "template": "c"}, {"name": "default", "template": null},
                                         {"name": "default", "template": "chat"}]})")
                .source(),
            "chat");
}

TEST(ModelText, AListWithoutADefaultIsRefusedByItsFile) {
  for (const char* config : {R"({"chat_template": []})", R"({"chat_template": [{"name": null, "template": "a"}]})",
                             R"({"chat_template": 3})", R"({"chat_template": {"default": "a"}})"}) {
    const Folder folder(config);
    try {
      ModelText::load(folder.path());
      FAIL() << config;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format) << config;
      EXPECT_NE(std::string(error.what()).find("tokenizer_config.json: chat_template"), std::string::npos)
          << error.what();
    }
  }
}

TEST(ModelText, AFileOfItsOwnWins) {
  const Folder folder(R"({"chat_template": "old"})");
  write_file(folder.path() / "chat_template.jinja", "new");
  EXPECT_EQ(folder.source(), "new");
}

TEST(ModelText, WithoutATemplateOnlyChatsAreRefused) {
  const Folder folder(R"({"chat_template": null})");
  const auto text = ModelText::load(folder.path());
  EXPECT_FALSE(text->has_chat_template());
  EXPECT_EQ(text->template_fingerprint(), 0u);
  EXPECT_FALSE(text->tokenizer()->encode("the").ids.empty());
  EXPECT_THROW(text->chat_template(), Error);
}

}  // namespace
}  // namespace pacer::text
