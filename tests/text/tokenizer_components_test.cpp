// Every component of tokenizer.json against the reference implementation (tests/golden/tokenizer_components).
#include <gtest/gtest.h>

#include "pacer/text/tokenizer.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;
using Offsets = std::vector<std::pair<int64_t, int64_t>>;

json tokenizer_json(const json& one) {
  json config = {{"model", json::object()}};
  if (!one.at("base").is_null())
    config = test::golden_json("tokenizers/" + one.at("base").get<std::string>() + "/tokenizer.json");
  for (const auto& [key, value] : one.at("change").items()) {
    if (key == "model") {
      config["model"].update(value);
    } else if (key == "without") {
      for (const json& piece : value) config["model"]["vocab"].erase(piece.get<std::string>());
    } else {
      config[key] = value;
    }
  }
  return config;
}

void check(const Tokenizer& tokenizer, const json& record) {
  const std::string text = record.at("text");
  const Encoding plain = tokenizer.encode(text, {.offsets = true});
  EXPECT_EQ(plain.ids, record.at("ids").get<Ids>()) << text;
  EXPECT_EQ(plain.offsets, record.at("offsets").get<Offsets>()) << text;
  EXPECT_EQ(tokenizer.encode(text).ids, plain.ids) << text;
  const Encoding special = tokenizer.encode(text, {.add_special_tokens = true, .offsets = true});
  EXPECT_EQ(special.ids, record.value("ids_with_special", record.at("ids")).get<Ids>()) << text;
  EXPECT_EQ(special.offsets, record.value("offsets_with_special", record.at("offsets")).get<Offsets>()) << text;
  EXPECT_EQ(tokenizer.decode(plain.ids), record.at("decoded").get<std::string>()) << text;
  EXPECT_EQ(tokenizer.decode(plain.ids, true), record.at("decoded_skip_special").get<std::string>()) << text;
}

TEST(TokenizerComponents, EqualTheReferenceInEveryCase) {
  size_t records = 0;
  for (const json& one : test::golden_jsonl("tokenizer_components/cases.jsonl")) {
    SCOPED_TRACE(one.at("name").get<std::string>());
    const auto tokenizer = Tokenizer::from_json(tokenizer_json(one).dump(), "case");
    const auto again = Tokenizer::from_json(tokenizer->to_json(), "written again");
    for (const json& record : one.at("records")) {
      check(*tokenizer, record);
      check(*again, record);
      ++records;
    }
  }
  EXPECT_GT(records, 500u);
}

}  // namespace
}  // namespace pacer::text
