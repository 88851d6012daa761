// A tokenizer that cannot be used as it is says which part, and no file or text makes it misbehave.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "pacer/base/error.h"
#include "pacer/text/tokenizer.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

json tiny_json(const std::string& name) { return test::golden_json("tokenizers/" + name + "/tokenizer.json"); }

const Tokenizer& byte_level() {
  static const auto tokenizer = Tokenizer::load(test::golden("tokenizers/tiny_llama3_style"));
  return *tokenizer;
}

void expect_error(const std::function<void()>& action, ErrorKind kind, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "no error, expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(TokenizerErrors, NameWhatIsNotSupportedByItsPath) {
  const struct {
    const char* patch;  // JSON merge patch on the tiny tokenizer
    const char* message;
  } cases[] = {
      {R"j({"normalizer": {"type": "Precompiled"}})j", "f: normalizer.type: \"Precompiled\" is not supported"},
      {R"j({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}})j",
       "f: normalizer.normalizers[1].type: \"Nmt\""},
      {R"j({"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"}})j",
       "normalizer.pattern: an empty"},
      {R"j({"normalizer": {"type": "Replace", "pattern": {}, "content": "x"}})j",
       "normalizer.pattern: \"String\" or \"Regex\""},
      {R"j({"pre_tokenizer": {"pretokenizers": [{"type": "UnicodeScripts"}]}})j",
       "f: pre_tokenizer.pretokenizers[0].type: \"UnicodeScripts\""},
      {R"j({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "(?m:a)"}, "behavior": "Isolated"}})j",
       "f: pre_tokenizer.pattern.Regex: \"(?m:\" at byte 0"},
      {R"j({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a("}, "behavior": "Isolated"}})j",
       "f: pre_tokenizer.pattern.Regex: regular expression not understood"},
      {R"j({"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Sideways"}})j",
       "f: pre_tokenizer.behavior: \"Sideways\""},
      {R"j({"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated", "invert": 1}})j",
       "f: pre_tokenizer.invert: true or false expected, found number"},
      {R"j({"pre_tokenizer": {"type": "Metaspace", "replacement": "ab"}})j",
       "pre_tokenizer.replacement: one character"},
      {R"j({"post_processor": {"type": "Oracle"}})j", "f: post_processor.type: \"Oracle\""},
      {R"j({"post_processor": {"type": "TemplateProcessing", "single": [], "special_tokens": {}}})j",
       "f: post_processor.single: the text itself"},
      {R"j({"post_processor": {"type": "TemplateProcessing", "special_tokens": {}, "single":
          [{"SpecialToken": {"id": "S"}}, {"Sequence": {"id": "A"}}]}})j",
       "f: post_processor.special_tokens.S: a value expected, found nothing"},
      {R"j({"decoder": {"type": "CTC"}})j", "f: decoder.type: \"CTC\""},
      {R"j({"decoder": {"type": "Sequence", "decoders": [{"type": "WordPiece"}]}})j", "f: decoder.decoders[0].type"},
      {R"j({"model": {"type": "Unigram"}})j", "f: model.type: \"Unigram\" is not supported; supported: BPE"},
      {R"j({"model": {"dropout": 0.1}})j", "f: model.dropout: must be null"},
      {R"j({"model": {"unk_token": "<nothing>"}})j", "f: model.unk_token: \"<nothing>\" is not in the vocabulary"},
      {R"j({"model": {"merges": [["a", "b", "c"]]}})j", "f: model.merges[0]"},
      {R"j({"model": {"merges": ["h e", "one two three"]}})j", "f: model.merges[1]"},
      {R"j({"model": {"merges": [["a", "\uffff"]]}})j", "f: model.merges[0]: \"\uffff\" is not in the vocabulary"},
      {R"j({"model": {"merges": [7]}})j", "f: model.merges[0]"},
      {R"j({"model": {"vocab": {"twice": 5}}})j", "f: model.vocab[\"twice\"]: an id"},
      {R"j({"model": {"vocab": {"far": 900000000}}})j", "f: model.vocab[\"far\"]"},
      {R"j({"model": {"vocab": {"below": -1}}})j", "f: model.vocab[\"below\"]"},
      {R"j({"model": {"vocab": {"text": "5"}}})j", "f: model.vocab[\"text\"]"},
      {R"j({"model": {"vocab": {"list": []}}})j", "f: model.vocab[\"list\"]"},
      {R"j({"added_tokens": [{"id": 3, "content": "a new one"}]})j", "f: added_tokens: \"a new one\" has id 3"},
      {R"j({"added_tokens": [{"id": 2000, "content": "e"}]})j", "f: added_tokens: \"e\" has id 2000"},
      {R"j({"added_tokens": [{"id": 2000, "content": ""}]})j", "f: added_tokens[0].content: an empty token"},
      {R"j({"added_tokens": [{"id": 2000, "content": "a"}, {"id": 2000, "content": "b"}]})j", "f: added_tokens[1]"},
      {R"j({"added_tokens": [{"id": 99000000, "content": "far"}]})j", "f: added_tokens[0].id: 99000000"},
      {R"j({"model": null})j", "f: model: a value expected, found nothing"},
  };
  for (const auto& one : cases) {
    json config = tiny_json("tiny_qwen_style");
    config.merge_patch(json::parse(one.patch));
    expect_error([&] { Tokenizer::from_json(config.dump(), "f"); }, ErrorKind::format, one.message);
  }
}

TEST(TokenizerErrors, BrokenAndHostileFiles) {
  expect_error([] { Tokenizer::from_json("{\"a\":\n [1, 2", "f"); }, ErrorKind::format, "f:2:");
  expect_error([] { Tokenizer::from_json("[]", "f"); }, ErrorKind::format, "f: an object expected");
  std::string deep = "{\"normalizer\": ";
  for (int i = 0; i < 100'000; ++i) deep += "{\"type\": \"Sequence\", \"normalizers\": [";
  expect_error([&] { Tokenizer::from_json(deep, "f"); }, ErrorKind::format, "nested deeper than");
  const test::TemporaryFolder folder;
  expect_error([&] { Tokenizer::load(folder.path()); }, ErrorKind::data, "tokenizer.json: no such file");
  std::ofstream(folder.path() / "tokenizer.json") << "{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}";
  EXPECT_TRUE(Tokenizer::load(folder.path())->encode("nothing is known").ids.empty());
}

TEST(TokenizerErrors, WrongInput) {
  expect_error([] { byte_level().encode("ab\xC3"); }, ErrorKind::data, "not valid UTF-8 at byte 2");
  expect_error([] { byte_level().encode("\xED\xA0\x80"); }, ErrorKind::data, "not valid UTF-8 at byte 0");
  expect_error([] { byte_level().decode(Ids{5, byte_level().vocab_size()}); }, ErrorKind::data, "token id");
  expect_error([] { byte_level().decode(Ids{-1}); }, ErrorKind::data, "token id -1");
  expect_error([] { byte_level().id_to_token(int64_t{1} << 40); }, ErrorKind::data, "token id");
  json config = tiny_json("tiny_llama3_style");
  config["added_tokens"].push_back({{"id", 1500}, {"content", "<far>"}});
  const auto holes = Tokenizer::from_json(config.dump(), "f");
  EXPECT_EQ(holes->vocab_size(), 1501);
  EXPECT_EQ(holes->decode(Ids{1500}), "<far>");
  expect_error([&] { holes->decode(Ids{1400}); }, ErrorKind::data, "token id 1400");
}

TEST(TokenizerErrors, AnExpressionThatExplodesIsStopped) {
  json config = tiny_json("tiny_llama3_style");
  config["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", "(x+x+)+[yz]"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = Tokenizer::from_json(config.dump(), "f");
  EXPECT_FALSE(tokenizer->encode("xxxxy xx").ids.empty());
  expect_error([&] { tokenizer->encode(std::string(40, 'x')); }, ErrorKind::data, "(x+x+)+[yz]");
}

}  // namespace
}  // namespace pacer::text
