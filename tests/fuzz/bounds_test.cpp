// Inputs of a megabyte that are built to cost as much as possible: every reader stays within a second of processor time
// and 100 MB. tests/formats/lying_files_test.cpp does the same for weights.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/data/prompts.h"
#include "pacer/data/rows.h"
#include "pacer/formats/manifest.h"
#include "pacer/text/supervision.h"
#include "pacer/train/recipe_reader.h"
#include "tests/fuzz/targets.h"
#include "tests/support/cost.h"
#include "tests/support/files.h"

namespace pacer::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMegabyte = size_t{1} << 20;

std::string repeated(const std::string& piece, size_t bytes = kMegabyte) {
  std::string text;
  text.reserve(bytes + piece.size());
  while (text.size() + piece.size() <= bytes) text += piece;
  return text;
}

// "0,1,2,..." through a pattern in which # is the number: as many different things as fit.
std::string numbered(const std::string& pattern, size_t bytes = kMegabyte) {
  std::string text;
  for (size_t i = 0; text.size() < bytes; ++i) {
    for (const char c : pattern) c == '#' ? void(text += std::to_string(i)) : text.push_back(c);
  }
  return text;
}

std::string without_last(std::string text) {
  text.pop_back();
  return text;
}

// `body` may succeed or refuse, within the bounds.
void expect_cheap(const std::string& what, const std::function<void()>& body) {
  const test::MemoryWatch memory;
  const double start = test::cpu_seconds();
  accepted(body);
  EXPECT_LT(test::cpu_seconds() - start, 1.0 * test::kSlowdown) << what;
  EXPECT_LT(memory.growth(), uint64_t{100} << 20) << what;
}

std::shared_ptr<const text::Tokenizer> load(const std::string& json) {
  return text::Tokenizer::from_json(json, "tokenizer.json");
}

OrderedJson tiny_tokenizer() {
  return OrderedJson::parse(read_file(test::golden("tokenizers/tiny_qwen_style/tokenizer.json")));
}

TEST(Bounds, TokenizersThatAreBuiltToCost) {
  const std::string model = R"("model":{"type":"BPE","vocab":{"a":0},"merges":[]})";
  const std::vector<std::pair<std::string, std::string>> files = {
      {"members of the top level", "{" + numbered(R"("#":1,)") + model + "}"},
      {"members of an object", R"({"normalizer":{)" + numbered(R"("#":[],)") + R"("type":"NFC"},)" + model + "}"},
      {"empty lists", R"({"added_tokens":[)" + repeated("[],") + "1]," + model + "}"},
      {"added tokens",
       R"({"added_tokens":[)" + without_last(numbered(R"({"id":#,"content":"x#"},)")) + "]," + model + "}"},
      {"added tokens with a common beginning",
       R"({"added_tokens":[)" +
           without_last(numbered(R"({"id":#,"content":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa#"},)")) +
           "]," + model + "}"},
      {"the largest id", R"({"model":{"type":"BPE","vocab":{"a":16777215},"merges":[]}})"},
      {"an id beyond it", R"({"model":{"type":"BPE","vocab":{"a":4294967296},"merges":[]}})"},
      {"many tokens",
       R"({"model":{"type":"BPE","vocab":{)" + without_last(numbered(R"("t#":#,)")) + R"(},"merges":[]}})"},
      {"many merges",
       R"({"model":{"type":"BPE","vocab":{"a":0,"aa":1},"merges":[)" + repeated(R"("a a",)") + R"("a a"]}})"},
      {"nested sequences", R"({"pre_tokenizer":)" + repeated(R"({"type":"Sequence","pretokenizers":[)") + "}"},
      {"many steps", R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
                         repeated(R"({"type":"Digits","individual_digits":true},)") +
                         R"({"type":"WhitespaceSplit"}]},)" + model + "}"},
      {"many expressions",
       R"({"pre_tokenizer":{"type":"Sequence","pretokenizers":[)" +
           repeated(R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Isolated","invert":false},)") +
           R"({"type":"WhitespaceSplit"}]},)" + model + "}"},
      {"a long expression", R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":")" + repeated("(a|b)?") +
                                R"("},"behavior":"Isolated","invert":false},)" + model + "}"},
      {"a nested expression", R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":")" +
                                  repeated("(", kMegabyte / 2) + repeated(")", kMegabyte / 2) +
                                  R"("},"behavior":"Isolated","invert":false},)" + model + "}"},
      {"an expression of repeats",
       R"({"pre_tokenizer":{"type":"Split","pattern":{"Regex":"((((a{1,99}){1,99}){1,99}){1,99}){1,99}"},
        "behavior":"Isolated","invert":false},)" +
           model + "}"},
      {"a replacement that grows",
       R"({"normalizer":{"type":"Sequence","normalizers":[)" +
           without_last(repeated(R"({"type":"Replace","pattern":{"String":"a"},"content":"aa"},)")) + "]}," + model +
           "}"},
  };
  for (const auto& [what, json] : files) {
    expect_cheap(what, [&, &json = json] { load(json)->encode("a aaaa 12 b"); });
  }
}

// The tokenizer is a stranger's, the text is ordinary.
TEST(Bounds, ExpressionsThatBacktrack) {
  for (const char* regex :
       {"(a+)+$", "(a|a)*b", "a*b|.", "(?=(a*)*b)a|.", "(a*)*(a*)*(a*)*c|a", "(.*)(.*)(.*)(.*)x|."}) {
    OrderedJson file = tiny_tokenizer();
    file["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
    const auto tokenizer = load(file.dump());
    for (const size_t bytes : {size_t{200}, size_t{20'000}}) {
      expect_cheap(std::string(regex) + " on " + std::to_string(bytes),
                   [&] { tokenizer->encode(std::string(bytes, 'a')); });
    }
  }
}

// The text is a stranger's, the tokenizer an ordinary one.
TEST(Bounds, TextsOfAMegabyte) {
  for (const char* name : {"tiny_llama3_style", "tiny_qwen_style", "tiny_byte_fallback"}) {
    const auto tokenizer = text::Tokenizer::load(test::golden("tokenizers/" + std::string(name)));
    for (const char* piece : {"a", " ", "\n", " \n", "the ", "aA1 ", "'", "<|im_", "\u0301", "\u4f60",
                              "\U0001F469\u200D", "e\u0301", "\uFDFA"}) {
      const std::string text = repeated(piece);
      expect_cheap(std::string(name) + ": " + piece, [&] { tokenizer->encode(text, {.offsets = false}); });
    }
  }
}

void render(const std::string& source) {
  text::RenderOptions options;
  options.clock = std::tm{};
  const OrderedJson messages = {{{"role", "user"}, {"content", "a b c"}}, {{"role", "assistant"}, {"content", "d"}}};
  text::ChatTemplate::parse(source, "template")->render(messages, options);
}

// Small templates that make much: what they may make is bounded by bytes and by steps.
TEST(Bounds, TemplatesThatGrow) {
  const std::string many = "{% for i in range(2000) %}";
  for (const std::string& source : {
           "{{ 'x' * 30000000 }}{{ 'x' * 30000000 }}" + std::string(),
           "{% set ns = namespace(x='a') %}" + many + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x='a') %}" + many +
               "{% set ns.x = ns.x ~ 'aaaaaaaaaaaaaaaa' %}{% endfor %}{{ ns.x }}",
           "{% set ns = namespace(x=[1]) %}" + many + "{% set ns.x = ns.x + ns.x %}{% endfor %}",
           "{% set ns = namespace(x=[]) %}" + many + "{% set ns.x = ns.x + [{'a': i, 'b': [i]}] %}{% endfor %}",
           "{% set ns = namespace(x={}) %}" + many + "{% set ns.x = dict(ns.x, **{'k' ~ i: [i]}) %}{% endfor %}",
           "{{ range(100000) | list }}" + std::string(),
           "{{ range(100000) | map('string') | list | join }}" + std::string(),
           many + "{{ 'abcdefgh' * 1000 }}{% endfor %}",
           many + "{{ range(1000) | list | tojson }}{% endfor %}",
           "{% set a = namespace() %}" + many + "{% set b = namespace(c=a) %}{% endfor %}",
       }) {
    expect_cheap(source, [&] { render(source); });
  }
}

TEST(Bounds, TemplatesThatAreLarge) {
  constexpr size_t kBytes = size_t{255} << 10;  // just below what is read at all
  expect_cheap("a megabyte", [] { render(repeated("{{ x }}")); });
  for (const char* piece : {"{{",
                            "{%",
                            "{#",
                            "{{ x }}",
                            "{% if x %}",
                            "{% for i in x %}",
                            "{% set x = 1 %}",
                            "{% macro m() %}",
                            "{{ [",
                            "{{ (",
                            "{{ {'a':",
                            "{{ x.",
                            "{{ x|",
                            "{{ not ",
                            "{{ -",
                            "\n",
                            "{{ '\\u0041' }}",
                            "{# #}",
                            "-%}",
                            "{% raw %}",
                            "{%- else -%}",
                            "a\xCC\x81"}) {
    expect_cheap(piece, [&] { render(repeated(piece, kBytes)); });
  }
  for (const char* piece : {"x, ", "[], ", "'a' ~ ", "x or ", "x == ", "(x), ", "not ", "x if x else "}) {
    expect_cheap(std::string("{{ [") + piece, [&] { render("{{ [" + repeated(piece, kBytes) + "x] }}"); });
  }
  expect_cheap("many names", [] { render(numbered("{% set x# = # %}", kBytes)); });
  expect_cheap("a dictionary", [] { render("{% set d = {" + numbered("'#': #,", kBytes) + "} %}{{ d['7'] }}"); });
  expect_cheap("arguments", [] { render("{{ namespace(" + without_last(numbered("a#=#,", kBytes)) + ") }}"); });
  expect_cheap("macros", [] { render(numbered("{% macro m#(a) %}{{ a }}{% endmacro %}{{ m#(1) }}", kBytes)); });
}

TEST(Bounds, ConversationsThatAreBuiltToCost) {
  const auto chatml =
      text::ChatTemplate::parse(read_file(test::golden("chat_templates/templates/chatml.jinja")), "chatml.jinja");
  const auto tokenizer = text::Tokenizer::load(test::golden("tokenizers/tiny_qwen_style"));
  const std::string turn = R"({"role":"user","content":"a"},{"role":"assistant","content":"b"},)";
  const std::string thinking =
      R"({"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}}]},)";
  const std::vector<std::pair<std::string, std::string>> lists = {
      {"many turns", "[" + without_last(repeated(turn)) + "]"},
      {"a few thousand turns", "[" + without_last(repeated(turn, kMegabyte / 8)) + "]"},
      {"many calls", "[" + without_last(repeated(thinking)) + "]"},
      {"one long answer",
       R"([{"role":"user","content":"a"},{"role":"assistant","content":")" + repeated("ab c ") + "\"}]"},
      {"many members", R"([{"role":"user","content":"a",)" + without_last(numbered(R"("#":1,)")) + "}]"},
      {"a deep argument", R"([{"role":"user","content":"a","x":)" + repeated("[", 500) + repeated("]", 500) + "}]"},
  };
  for (const auto& [what, json] : lists) {
    expect_cheap(what, [&, &json = json] {
      text::supervise(*chatml, *tokenizer, parse_ordered_json(json, "messages", ErrorKind::data));
    });
  }
}

TEST(Bounds, RowsThatAreBuiltToCost) {
  const std::vector<std::pair<std::string, std::string>> files = {
      {"members", "{" + numbered(R"("#":1,)") + R"("prompt":"a"})"},
      {"members in many rows", repeated("{" + numbered(R"("#":1,)", 40'000) + "\"prompt\":\"a\"}\n")},
      {"deep rows", repeated(repeated("[", 120) + repeated("]", 120) + "\n")},
      {"too deep", std::string(kMegabyte, '[')},
      {"empty rows", std::string(kMegabyte, '\n')},
      {"small rows", repeated("{}\n")},
      {"bad rows of one kind each", numbered(R"({"prompt_ids":[#],"output_ids":"#"})"
                                             "\n")},
      {"prompts", numbered("{\"prompt\":\"#\"}\n")},
      {"a list of empty lists", "[" + repeated("[],") + "1]"},
      {"a list of prompts", "[" + repeated(R"({"prompt":"a"},)") + "1]"},
      {"turns", R"({"turns":[)" + repeated(R"("",)") + R"("a"]})"},
      {"messages", R"({"messages":[)" + repeated(R"({"role":"user"},)") + R"({"role":"user","content":"a"}]})"},
      {"ids", R"({"prompt_ids":[)" + repeated("1,") + R"(1],"output_ids":[1,2,3]})"},
      {"escapes", R"({"prompt":")" + repeated("\\u0041") + "\"}"},
      {"tools in text", R"({"prompt":"a","tools":")" + repeated("[") + "\"}"},
      {"a number", R"({"prompt":"a","x":)" + repeated("9") + "}"},
      {"not UTF-8", std::string(kMegabyte, '\xff')},
  };
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "rows.jsonl";
  for (const auto& [what, content] : files) {
    write_file(path, content);
    expect_cheap(what + " as prompts", [&] { data::read_prompts(path); });
    expect_cheap(what + " as rows", [&] { data::read_rows(path, {}); });
  }
}

TEST(Bounds, RecipesThatAreBuiltToCost) {
  for (const std::string& text : {std::string(kMegabyte, '['),
                                  std::string(kMegabyte, '{'),
                                  repeated("- "),
                                  repeated("? "),
                                  repeated("a: "),
                                  repeated("a:\n "),
                                  numbered("k#: 1\n"),
                                  repeated("!a "),
                                  repeated("&a "),
                                  repeated("--- \n"),
                                  repeated("# x\n"),
                                  "a: \"" + repeated("\\x41") + "\"",
                                  "a: |\n" + repeated("  x\n"),
                                  "a: [" + repeated("1, ") + "1]",
                                  repeated("[a, "),
                                  repeated("{a: "),
                                  repeated("'"),
                                  repeated("%TAG ! x\n"),
                                  std::string(kMegabyte, ' '),
                                  std::string(kMegabyte, '\t'),
                                  "optimizer: {rates: {" + numbered("k#: 1, ") + "a: 1}}"}) {
    expect_cheap(text.substr(0, 20), [&] { train::parse_recipe(text, "recipe.yaml"); });
  }
}

TEST(Bounds, ManifestsThatAreBuiltToCost) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "a", std::string(kMegabyte, 'x'));
  const std::string head = R"({"schema":"s","version":1,"files":[)";
  const std::string entry = R"({"name":"a","bytes":1048576,"crc32c":"00000000"},)";
  for (const std::string& text :
       {head + repeated(entry) + "1]}", head + without_last(repeated(entry)) + "]}", head + repeated("{},") + "1]}",
        head + R"(],"fingerprints":{)" + numbered(R"("#":"",)") + R"("a":""}})",
        head + R"(],"details":{)" + numbered(R"("#":{},)") + R"("a":""}})"}) {
    write_file(folder.path() / "manifest.json", text);
    expect_cheap(text.substr(0, 60),
                 [&] { formats::read_manifest(folder.path(), "s", 1, formats::ManifestCheck::checksums); });
  }
}

}  // namespace
}  // namespace pacer::fuzz
