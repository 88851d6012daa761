#include "pacer/text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <thread>

#include "tests/support/files.h"

namespace pacer::text {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<int64_t>;

json tiny_json(const std::string& name) { return test::golden_json("tokenizers/" + name + "/tokenizer.json"); }

std::shared_ptr<const Tokenizer> tiny(const std::string& name) {
  return Tokenizer::load(test::golden("tokenizers/" + name));
}

const Tokenizer& byte_level() {  // no normalizer: nothing is lost
  static const auto tokenizer = tiny("tiny_llama3_style");
  return *tokenizer;
}

const Tokenizer& byte_fallback() {
  static const auto tokenizer = tiny("tiny_byte_fallback");
  return *tokenizer;
}

// Random text: letters that merge, spaces, any code point, added tokens.
std::string random_text() {
  const auto any = rc::gen::map(rc::gen::inRange<uint32_t>(0, 0x110000 - 0x800), [](uint32_t c) {
    if (c >= 0xD800) c += 0x800;
    std::string out;
    const auto push = [&](uint32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
    if (c < 0x80) {
      push(c);
    } else if (c < 0x800) {
      push(0xC0 | (c >> 6)), push(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
      push(0xE0 | (c >> 12)), push(0x80 | ((c >> 6) & 0x3F)), push(0x80 | (c & 0x3F));
    } else {
      push(0xF0 | (c >> 18)), push(0x80 | ((c >> 12) & 0x3F)), push(0x80 | ((c >> 6) & 0x3F)), push(0x80 | (c & 0x3F));
    }
    return out;
  });
  const auto common =
      rc::gen::element<std::string>("the", "in", "e", "t", "s", " ", "  ", "\n", "\r\n", "12", "'s", "é", "e\u0301",
                                    "你", "😀", "<|im_end|>", "<|eot_id|>", "<s>", "<|im_", "\u2581");
  const auto parts = *rc::gen::container<std::vector<std::string>>(rc::gen::oneOf(common, common, any));
  std::string text;
  for (const auto& part : parts) text += part;
  return text;
}

int64_t code_points(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

RC_GTEST_PROP(TokenizerProperties, ByteLevelTextComesBack, ()) {
  const std::string text = random_text();
  RC_ASSERT(byte_level().decode(byte_level().encode(text).ids) == text);
}

RC_GTEST_PROP(TokenizerProperties, OffsetsCoverTheText, ()) {
  const std::string text = random_text();
  const Encoding encoding = byte_level().encode(text, {.offsets = true});
  RC_ASSERT(encoding.offsets.size() == encoding.ids.size());
  RC_ASSERT(encoding.ids == byte_level().encode(text).ids);
  int64_t reached = 0;
  for (const auto& [begin, end] : encoding.offsets) {
    RC_ASSERT(begin <= reached && begin < end);           // no gap
    RC_ASSERT(begin == reached || begin == reached - 1);  // at most one shared code point
    reached = end;
  }
  RC_ASSERT(reached == code_points(text));
}

RC_GTEST_PROP(TokenizerProperties, StreamedTextIsDecodedText, ()) {
  const bool skip = *rc::gen::arbitrary<bool>();
  for (const std::string name : {"tiny_llama3_style", "tiny_qwen_style", "tiny_byte_fallback"}) {
    static std::map<std::string, std::shared_ptr<const Tokenizer>> loaded;
    auto& tokenizer = loaded[name];
    if (tokenizer == nullptr) tokenizer = tiny(name);
    const auto ids = *rc::gen::container<Ids>(rc::gen::inRange<int64_t>(0, tokenizer->vocab_size()));
    TokenStream stream(tokenizer, skip);
    std::string text;
    for (const int64_t id : ids) {
      text += stream.push(id);
      RC_ASSERT(tokenizer->decode(ids, skip).starts_with(text));
    }
    text += stream.finish();
    RC_ASSERT(text == tokenizer->decode(ids, skip));
  }
}

// Merging as it is defined: again and again the best pair of the whole list, the leftmost first.
Ids merge_naively(const std::string& text) {
  static const json config = tiny_json("tiny_byte_fallback");
  static const std::map<std::pair<std::string, std::string>, size_t> ranks = [] {
    std::map<std::pair<std::string, std::string>, size_t> all;
    for (const json& merge : config.at("model").at("merges")) all.emplace(std::pair(merge[0], merge[1]), all.size());
    return all;
  }();
  std::vector<std::string> symbols;
  for (const char c : text) {
    if ((c & 0xC0) == 0x80) {
      symbols.back() += c;
    } else {
      symbols.emplace_back(1, c);
    }
  }
  while (true) {
    size_t best = SIZE_MAX, at = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) best = found->second, at = i;
    }
    if (best == SIZE_MAX) break;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const auto& symbol : symbols) ids.push_back(config.at("model").at("vocab").at(symbol));
  return ids;
}

// Short words, the queue for long ones, the cuts and the cache are all the same merging.
RC_GTEST_PROP(TokenizerProperties, MergesEqualTheDefinition, ()) {
  const auto letters = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("e", "t", "h", "i", "n", "s", "o", "r", "\u2581", "\u2581", "a", "d"));
  std::string text;
  for (const auto& letter : letters) text += letter;
  RC_PRE(!text.empty());
  Ids expected = merge_naively("\u2581" + text);
  RC_ASSERT(byte_fallback().encode(text).ids == expected);
}

TEST(Tokenizer, LongRunsTakeNoQuadraticTime) {
  // One quadratic step over these would take hours.
  for (const std::string unit : {"x", " ", "th", "é", "\u2581e"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_EQ(byte_fallback().decode(byte_fallback().encode(text).ids), unit == "\u2581e" ? [&] {
      std::string spaced;
      while (spaced.size() < text.size() / 2) spaced += " e";
      return spaced;
    }() : text) << unit;
    EXPECT_EQ(byte_level().decode(byte_level().encode(text).ids), text) << unit;
  }
}

TEST(Tokenizer, TokensAndIds) {
  const json config = tiny_json("tiny_llama3_style");
  for (const auto& [token, id] : config.at("model").at("vocab").items()) {
    EXPECT_EQ(byte_level().token_to_id(token), id.get<int64_t>());
    EXPECT_EQ(byte_level().id_to_token(id.get<int64_t>()), token);
    EXPECT_FALSE(byte_level().is_special(id.get<int64_t>()));
  }
  std::vector<std::pair<std::string, int64_t>> special;
  for (const json& token : config.at("added_tokens")) {
    special.emplace_back(token.at("content"), token.at("id"));
    EXPECT_EQ(byte_level().token_to_id(special.back().first), special.back().second);
    EXPECT_EQ(byte_level().id_to_token(special.back().second), special.back().first);
    EXPECT_TRUE(byte_level().is_special(special.back().second));
  }
  EXPECT_EQ(byte_level().special_tokens(), special);
  EXPECT_EQ(byte_level().token_to_id("no such token"), std::nullopt);
}

TEST(Tokenizer, WorksFromSeveralThreads) {
  const auto tokenizer = tiny("tiny_qwen_style");
  const auto records = test::golden_jsonl("tokenizers/tiny_qwen_style.jsonl");
  std::vector<std::thread> threads;
  std::vector<size_t> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (const json& record : records) {
        if (record.at("kind") != "encode") continue;
        const Ids ids = record.at("ids");
        wrong[t] += tokenizer->encode(record.at("text").get<std::string>()).ids != ids;
        wrong[t] += tokenizer->decode(ids) != record.at("decoded").get<std::string>();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(wrong, ::testing::Each(0u));
}

TEST(Tokenizer, StreamHoldsBackAnUnfinishedCharacter) {
  const auto tokenizer = tiny("tiny_llama3_style");
  const std::string text = "a😀b";
  TokenStream stream(tokenizer);
  std::vector<std::string> pieces;
  for (const int64_t id : tokenizer->encode(text).ids) {
    pieces.push_back(stream.push(id));
    EXPECT_THAT(pieces.back(), ::testing::Not(HasSubstr("\uFFFD")));
  }
  EXPECT_EQ(pieces.front(), "a");
  EXPECT_THAT(pieces, ::testing::Contains("😀").Times(1));
  EXPECT_EQ(stream.finish(), "");
  TokenStream cut(tokenizer);
  EXPECT_EQ(cut.push(tokenizer->encode("😀").ids.front()), "");
  EXPECT_EQ(cut.finish(), "\uFFFD");
}

}  // namespace
}  // namespace pacer::text
