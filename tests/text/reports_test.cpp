// Entries of docs/known_failures.md about text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/text/model_text.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

using ::testing::HasSubstr;

// A tokenizer whose post-processor puts <|im_start|> in front of plain text.
OrderedJson with_beginning() {
  OrderedJson file = OrderedJson::parse(read_file(test::golden("tokenizers/tiny_qwen_style/tokenizer.json")));
  const int64_t id = file.at("added_tokens").at(0).at("id");
  const std::string token = file.at("added_tokens").at(0).at("content");
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", token}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", OrderedJson::array()},
      {"special_tokens", {{token, {{"id", token}, {"ids", {id}}, {"tokens", {token}}}}}}};
  return file;
}

TEST(TextReports, Report19ChatsGetNoSecondBeginningToken) {
  const OrderedJson file = with_beginning();
  const std::string token = file.at("added_tokens").at(0).at("content");
  const int64_t id = file.at("added_tokens").at(0).at("id");
  const OrderedJson messages = {{{"role", "user"}, {"content", "the"}}};
  for (const bool in_template : {true, false}) {
    const test::TemporaryFolder folder;
    write_file(folder.path() / "tokenizer.json", file.dump());
    write_file(
        folder.path() / "tokenizer_config.json",
        OrderedJson{{"bos_token", token},
                    {"chat_template", std::string(in_template ? "{{ bos_token }}" : "") + "{{ messages[0].content }}"}}
            .dump());
    const auto text = ModelText::load(folder.path());
    EXPECT_EQ(std::ranges::count(text->prompt_ids(messages), id), in_template ? 1 : 0) << "the template alone decides";
    EXPECT_EQ(text->tokenizer()->encode("the", {.add_special_tokens = true}).ids.front(), id)
        << "plain text has its own";
  }
}

TEST(TextReports, Report26ALoneSurrogateIsNoText) {
  EXPECT_THROW(parse_ordered_json(R"({"prompt": "\ud800"})", "row", ErrorKind::data), Error);
  const auto tokenizer = Tokenizer::load(test::golden("tokenizers/tiny_qwen_style"));
  EXPECT_THROW(tokenizer->encode("\xED\xA0\x80"), Error) << "the same in UTF-8";
  EXPECT_EQ(tokenizer->encode("F\u00fchrer").ids, tokenizer->encode("Fu\u0308hrer").ids) << "this file declares NFC";
}

TEST(TextReports, Report29TwoIdsForOneTokenAreRefused) {
  OrderedJson file = OrderedJson::parse(read_file(test::golden("tokenizers/tiny_qwen_style/tokenizer.json")));
  const auto word = file.at("model").at("vocab").items().begin();
  file["added_tokens"].push_back({{"id", 9000}, {"content", word.key()}, {"special", true}});
  try {
    Tokenizer::from_json(file.dump(), "tokenizer.json");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has id 9000, in the vocabulary it has id " + word.value().dump()));
  }
}

}  // namespace
}  // namespace pacer::text
