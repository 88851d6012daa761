// Every record of tests/golden/tokenizers: ids, offsets and texts must be equal, nothing less.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pacer/base/files.h"
#include "pacer/formats/gguf.h"
#include "pacer/text/tokenizer.h"
#include "tests/support/files.h"
#include "tests/support/sha256.h"

namespace pacer::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

std::string name_of(const json& record) { return record.dump(-1, ' ', true).substr(0, 300); }

void expect_decoded(const Tokenizer& tokenizer, const Ids& ids, const json& record) {
  EXPECT_EQ(tokenizer.decode(ids), record.at("decoded").get<std::string>()) << name_of(record);
  if (record.contains("decoded_skip_special")) {
    EXPECT_EQ(tokenizer.decode(ids, true), record.at("decoded_skip_special").get<std::string>()) << name_of(record);
  }
}

void check_encode(const Tokenizer& tokenizer, const json& record) {
  const std::string text = record.at("text");
  const Ids ids = record.at("ids");
  EXPECT_EQ(tokenizer.encode(text).ids, ids) << name_of(record);
  const Encoding with_offsets = tokenizer.encode(text, {.offsets = true});
  EXPECT_EQ(with_offsets.ids, ids) << name_of(record);
  if (record.contains("offsets")) {
    const std::vector<std::pair<int64_t, int64_t>> offsets = record.at("offsets");
    EXPECT_EQ(with_offsets.offsets, offsets) << name_of(record);
  }
  expect_decoded(tokenizer, ids, record);
  if (record.contains("ids_with_special")) {
    const Ids all = record.at("ids_with_special");
    EXPECT_EQ(tokenizer.encode(text, {.add_special_tokens = true}).ids, all) << name_of(record);
  }
}

void check_encode_repeat(const Tokenizer& tokenizer, const json& record) {
  std::string text;
  for (int64_t i = 0; i < record.at("count").get<int64_t>(); ++i) text += record.at("unit").get<std::string>();
  const Ids ids = tokenizer.encode(text).ids;
  ASSERT_EQ(ids.size(), record.at("num_ids").get<size_t>()) << name_of(record);
  const Ids head = record.at("ids_head"), tail = record.at("ids_tail");
  EXPECT_EQ(Ids(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(head.size())), head) << name_of(record);
  EXPECT_EQ(Ids(ids.end() - static_cast<std::ptrdiff_t>(tail.size()), ids.end()), tail) << name_of(record);
  std::string bytes;
  for (const int64_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>((id >> shift) & 0xFF));
  }
  EXPECT_EQ(test::sha256(bytes), record.at("ids_sha256_le32").get<std::string>()) << name_of(record);
  EXPECT_EQ(tokenizer.decode(ids) == text, record.at("decoded_equals_text").get<bool>()) << name_of(record);
}

// Returns how many records were compared, the header aside.
void check_all(const Tokenizer& tokenizer, const std::string& file) {
  size_t encodes = 0, repeats = 0, decodes = 0;
  const auto records = test::golden_jsonl("tokenizers/" + file + ".jsonl");
  for (const json& record : records) {
    const std::string kind = record.at("kind");
    if (kind == "header") {
      EXPECT_EQ(tokenizer.vocab_size(), record.at("vocab_size").get<int64_t>());
    } else if (kind == "encode") {
      check_encode(tokenizer, record), ++encodes;
    } else if (kind == "encode_repeat") {
      check_encode_repeat(tokenizer, record), ++repeats;
    } else if (kind == "decode") {
      expect_decoded(tokenizer, record.at("ids"), record), ++decodes;
    } else {
      ADD_FAILURE() << "unknown kind of record: " << name_of(record);
    }
  }
  EXPECT_EQ(1 + encodes + repeats + decodes, records.size());
  EXPECT_GT(encodes, 0u);
  EXPECT_GT(repeats, 0u);
  EXPECT_GT(decodes, 0u);
}

// The tokenizer and the one that its own to_json() makes.
void check_with_round_trip(const std::shared_ptr<const Tokenizer>& tokenizer, const std::string& file) {
  check_all(*tokenizer, file);
  const std::string again = tokenizer->to_json();
  const auto copy = Tokenizer::from_json(again, "written again");
  check_all(*copy, file);
  EXPECT_EQ(copy->to_json(), again);
}

std::shared_ptr<const Tokenizer> tiny(const std::string& name) {
  return Tokenizer::load(test::golden("tokenizers/" + name));
}

void expect_sha256(const std::filesystem::path& path, const std::string& golden_file) {
  const json header = test::golden_jsonl("tokenizers/" + golden_file + ".jsonl").at(0);
  ASSERT_EQ(test::sha256(read_file(path)), header.at("sha256").get<std::string>()) << path;
}

TEST(TokenizerGoldenTinyQwenStyle, EveryRecord) { check_with_round_trip(tiny("tiny_qwen_style"), "tiny_qwen_style"); }

TEST(TokenizerGoldenTinyLlama3Style, EveryRecord) {
  check_with_round_trip(tiny("tiny_llama3_style"), "tiny_llama3_style");
}

TEST(TokenizerGoldenTinyByteFallback, EveryRecord) {
  check_with_round_trip(tiny("tiny_byte_fallback"), "tiny_byte_fallback");
}

TEST(TokenizerGoldenQwen3, EveryRecord) {
  PACER_PACKAGE_OR_SKIP(folder, "qwen3-tokenizer");
  const auto path = folder / "package/models/tokenizer.json";
  expect_sha256(path, "qwen3");
  check_with_round_trip(Tokenizer::load(path), "qwen3");
}

TEST(TokenizerGoldenLlama31, EveryRecord) {
  PACER_PACKAGE_OR_SKIP(folder, "llama3-tokenizer");
  const auto path = folder / "package/models/tokenizer.json";
  expect_sha256(path, "llama3_1");
  check_with_round_trip(Tokenizer::load(path), "llama3_1");
}

TEST(TokenizerGoldenSmolLm2, EveryRecordFromGguf) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  const json header = test::golden_jsonl("tokenizers/smollm2.jsonl").at(0);
  const auto tokenizer = Tokenizer::load(folder / header.at("file").get<std::string>());
  check_with_round_trip(tokenizer, "smollm2");
  std::vector<std::pair<std::string, int64_t>> special;
  for (const auto& [token, id] : header.at("special_tokens").items()) special.emplace_back(token, id.get<int64_t>());
  EXPECT_THAT(tokenizer->special_tokens(), ::testing::UnorderedElementsAreArray(special));
}

}  // namespace
}  // namespace pacer::text
