// Tokenizers from GGUF metadata, in files that are written here from the tiny tokenizer.json files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "pacer/base/error.h"
#include "pacer/formats/gguf.h"
#include "pacer/text/tokenizer.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

// The metadata of a GGUF file (version 3, little-endian) without tensors.
class GgufMetadata {
 public:
  void text(const std::string& key, const std::string& value) { start(key, 8), string(value); }
  void boolean(const std::string& key, bool value) { start(key, 7), bytes_.push_back(value ? 1 : 0); }
  void u32(const std::string& key, uint32_t value) { start(key, 4), number(value); }
  void texts(const std::string& key, const std::vector<std::string>& values) {
    array(key, 8, values.size());
    for (const auto& value : values) string(value);
  }
  void i32s(const std::string& key, const std::vector<int32_t>& values) {
    array(key, 5, values.size());
    for (const int32_t value : values) number(value);
  }
  void f32s(const std::string& key, const std::vector<float>& values) {
    array(key, 6, values.size());
    for (const float value : values) number(value);
  }
  std::shared_ptr<const Tokenizer> load() const {
    const test::TemporaryFolder folder;
    const auto path = folder.path() / "model.gguf";
    std::string head = "GGUF";
    append(head, uint32_t{3}), append(head, uint64_t{0}), append(head, count_);
    std::ofstream(path, std::ios::binary) << head << bytes_ << std::string(32, '\0');
    return Tokenizer::load(path);
  }

 private:
  template <typename T>
  static void append(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void number(T value) {
    append(bytes_, value);
  }
  void string(const std::string& value) { number(uint64_t{value.size()}), bytes_ += value; }
  void start(const std::string& key, uint32_t type) { ++count_, string(key), number(type); }
  void array(const std::string& key, uint32_t type, uint64_t size) { start(key, 9), number(type), number(size); }
  std::string bytes_;
  uint64_t count_ = 0;
};

struct Vocabulary {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
};

json tiny_json(const std::string& name) { return test::golden_json("tokenizers/" + name + "/tokenizer.json"); }

Vocabulary vocabulary_of(const json& config) {
  Vocabulary all;
  const auto put = [&](const std::string& token, size_t id, int32_t type) {
    if (id >= all.tokens.size()) all.tokens.resize(id + 1), all.types.resize(id + 1, 1);
    all.tokens[id] = token, all.types[id] = type;
  };
  for (const auto& [token, id] : config.at("model").at("vocab").items()) {
    put(token, id, token.size() == 6 && token.starts_with("<0x") ? 6 : 1);
  }
  for (const json& token : config.at("added_tokens"))
    put(token.at("content"), token.at("id"), token.at("special") ? 3 : 4);
  for (const json& merge : config.at("model").at("merges")) {
    all.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  for (size_t id = 0; id < all.tokens.size(); ++id) all.scores.push_back(-static_cast<float>(id));
  return all;
}

GgufMetadata byte_level_file(const json& config, const std::string& pre) {
  const Vocabulary all = vocabulary_of(config);
  GgufMetadata file;
  file.text("tokenizer.ggml.model", "gpt2");
  if (!pre.empty()) file.text("tokenizer.ggml.pre", pre);
  file.texts("tokenizer.ggml.tokens", all.tokens);
  file.i32s("tokenizer.ggml.token_type", all.types);
  file.texts("tokenizer.ggml.merges", all.merges);
  return file;
}

std::vector<std::string> golden_texts(const std::string& name) {
  std::vector<std::string> texts;
  for (const json& record : test::golden_jsonl("tokenizers/" + name + ".jsonl")) {
    if (record.at("kind") == "encode") texts.push_back(record.at("text"));
  }
  return texts;
}

void expect_equal(const Tokenizer& a, const Tokenizer& b, const std::vector<std::string>& texts) {
  for (const auto& text : texts) {
    const Encoding x = a.encode(text, {.offsets = true}), y = b.encode(text, {.offsets = true});
    EXPECT_EQ(x.ids, y.ids) << text;
    EXPECT_EQ(x.offsets, y.offsets) << text;
    EXPECT_EQ(a.decode(x.ids), b.decode(x.ids)) << text;
  }
}

void expect_error(const std::function<void()>& action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "no error, expected one with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(TokenizerGguf, Llama3EqualsTheGoldenRecords) {
  const json config = tiny_json("tiny_llama3_style");
  GgufMetadata file = byte_level_file(config, "llama-bpe");
  const Vocabulary all = vocabulary_of(config);
  const auto bos = std::find(all.tokens.begin(), all.tokens.end(), "<|begin_of_text|>") - all.tokens.begin();
  file.u32("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(bos));
  const auto tokenizer = file.load();
  for (const json& record : test::golden_jsonl("tokenizers/tiny_llama3_style.jsonl")) {
    if (record.at("kind") != "encode") continue;
    const std::string text = record.at("text");
    EXPECT_EQ(tokenizer->encode(text).ids, record.at("ids").get<Ids>()) << text;
    EXPECT_EQ(tokenizer->encode(text, {.add_special_tokens = true}).ids, record.at("ids_with_special").get<Ids>());
  }
}

TEST(TokenizerGguf, Qwen2EqualsItsTokenizerJson) {
  json config = tiny_json("tiny_qwen_style");
  // What the metadata can say about added tokens: special or not.
  for (json& token : config["added_tokens"]) {
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"}) token[flag] = false;
  }
  expect_equal(*byte_level_file(config, "qwen2").load(), *Tokenizer::from_json(config.dump(), "f"),
               golden_texts("tiny_qwen_style"));
}

TEST(TokenizerGguf, Gpt2AndSmolLmPatterns) {
  json config = tiny_json("tiny_llama3_style");
  config["model"]["ignore_merges"] = false;
  const json step = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", true}};
  config["pre_tokenizer"] = step;
  expect_equal(*byte_level_file(config, "gpt-2").load(), *Tokenizer::from_json(config.dump(), "f"),
               golden_texts("tiny_llama3_style"));
  config["pre_tokenizer"] = {{"type", "Sequence"},
                             {"pretokenizers", {{{"type", "Digits"}, {"individual_digits", true}}, step}}};
  expect_equal(*byte_level_file(config, "smollm").load(), *Tokenizer::from_json(config.dump(), "f"),
               golden_texts("tiny_llama3_style"));
}

TEST(TokenizerGguf, DefaultCutsNumbersIntoThrees) {
  // No merge crosses a cut, so every cut is a boundary between tokens.
  json config = tiny_json("tiny_llama3_style");
  const auto tokenizer = byte_level_file(config, "default").load();
  const Encoding encoding = tokenizer->encode("ab+=12345 c", {.offsets = true});
  std::vector<int64_t> ends;
  for (const auto& [begin, end] : encoding.offsets) ends.push_back(end);
  EXPECT_THAT(ends, ::testing::IsSupersetOf({2, 4, 7, 9}));
  EXPECT_EQ(tokenizer->decode(encoding.ids), "ab+=12345 c");
}

// Scores that fall with the id give the merges in the order in which they were learned.
TEST(TokenizerGguf, SentencePieceEqualsTheGoldenRecords) {
  const json config = tiny_json("tiny_byte_fallback");
  const Vocabulary all = vocabulary_of(config);
  GgufMetadata file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", all.tokens);
  file.i32s("tokenizer.ggml.token_type", all.types);
  file.f32s("tokenizer.ggml.scores", all.scores);
  file.u32("tokenizer.ggml.bos_token_id", 1);
  file.u32("tokenizer.ggml.eos_token_id", 2);
  file.u32("tokenizer.ggml.unknown_token_id", 0);
  file.boolean("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = file.load();
  const auto again = Tokenizer::from_json(tokenizer->to_json(), "written again");
  for (const json& record : test::golden_jsonl("tokenizers/tiny_byte_fallback.jsonl")) {
    if (!record.contains("ids")) continue;
    const Ids ids = record.at("ids");
    EXPECT_EQ(tokenizer->decode(ids), record.at("decoded").get<std::string>());
    if (record.at("kind") != "encode") continue;
    const std::string text = record.at("text");
    EXPECT_EQ(tokenizer->encode(text).ids, ids) << text;
    EXPECT_EQ(again->encode(text).ids, ids) << text;
    Ids all_ids = ids;
    all_ids.insert(all_ids.begin(), 1), all_ids.push_back(2);
    EXPECT_EQ(tokenizer->encode(text, {.add_special_tokens = true}).ids, all_ids) << text;
  }
}

TEST(TokenizerGguf, SaysWhatIsMissingOrNotSupported) {
  const json config = tiny_json("tiny_llama3_style");
  expect_error([&] { byte_level_file(config, "").load(); }, "tokenizer.ggml.pre is missing");
  expect_error([&] { byte_level_file(config, "tekken").load(); }, "tokenizer.ggml.pre: \"tekken\" is not supported");
  expect_error([&] { byte_level_file(config, "llama-bpe").load(); }, "tokenizer.ggml.bos_token_id");
  GgufMetadata other;
  other.text("tokenizer.ggml.model", "bert");
  other.texts("tokenizer.ggml.tokens", {"a"});
  expect_error([&] { other.load(); }, "tokenizer.ggml.model: \"bert\" is not supported");
  GgufMetadata twice;
  twice.text("tokenizer.ggml.model", "gpt2");
  twice.texts("tokenizer.ggml.tokens", {"a", "a"});
  expect_error([&] { twice.load(); }, "tokenizer.ggml.tokens[1]");
  GgufMetadata unequal;
  unequal.text("tokenizer.ggml.model", "gpt2");
  unequal.texts("tokenizer.ggml.tokens", {"a", "b"});
  unequal.i32s("tokenizer.ggml.token_type", {1});
  expect_error([&] { unequal.load(); }, "tokenizer.ggml.token_type has 1 entries");
  GgufMetadata merges;
  merges.text("tokenizer.ggml.model", "gpt2");
  merges.text("tokenizer.ggml.pre", "gpt-2");
  merges.texts("tokenizer.ggml.tokens", {"a", "b"});
  merges.texts("tokenizer.ggml.merges", {"a b"});
  expect_error([&] { merges.load(); }, "model.merges[0]: \"ab\" is not in the vocabulary");
}

}  // namespace
}  // namespace pacer::text
