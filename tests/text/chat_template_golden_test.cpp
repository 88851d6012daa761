#include <gmock/gmock.h>

#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/gguf.h"
#include "pacer/text/chat_template.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

OrderedJson read_ordered(const std::string& name) { return parse_ordered_json(read_file(test::golden(name)), name); }

std::vector<OrderedJson> read_ordered_lines(const std::string& name) {
  std::istringstream lines(read_file(test::golden(name)));
  std::vector<OrderedJson> out;
  for (std::string line; std::getline(lines, line);) out.push_back(parse_ordered_json(line, name));
  return out;
}

std::tm clock_of(const OrderedJson& inputs) {
  std::tm clock{};
  std::istringstream text(inputs.at("clock").get<std::string>());
  int year, month;
  char mark;
  text >> year >> mark >> month >> mark >> clock.tm_mday >> clock.tm_hour >> mark >> clock.tm_min >> mark >>
      clock.tm_sec;
  EXPECT_TRUE(text) << "clock of inputs.json";
  clock.tm_year = year - 1900;
  clock.tm_mon = month - 1;
  return clock;
}

void check(const ChatTemplate& chat_template, const OrderedJson& record, const OrderedJson& inputs,
           const std::tm& clock) {
  RenderOptions options;
  options.add_generation_prompt = record.at("add_generation_prompt").get<bool>();
  if (record.at("tools").get<bool>()) options.tools = inputs.at("tools");
  options.variables = record.at("variables");
  options.clock = clock;
  const OrderedJson& messages = inputs.at("conversations").at(record.at("conversation").get<std::string>());
  if (record.contains("rendered")) {
    const Rendered rendered = chat_template.render(messages, options);
    EXPECT_EQ(rendered.text, record.at("rendered").get<std::string>());
    std::vector<Span> spans;
    if (record.contains("generation_char_spans")) spans = record.at("generation_char_spans").get<std::vector<Span>>();
    EXPECT_EQ(rendered.generation, spans);
    return;
  }
  try {
    const Rendered rendered = chat_template.render(messages, options);
    FAIL() << "rendered instead of failing: " << rendered.text;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    const std::string expected = record.at("error").get<std::string>();
    if (record.at("error_type") == "TemplateError") {
      EXPECT_EQ(error.what(), expected);
    } else {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(expected));
    }
  }
}

TEST(ChatTemplateGolden, RendersEveryConversationAsJinjaDoes) {
  const OrderedJson inputs = read_ordered("chat_templates/inputs.json");
  const std::tm clock = clock_of(inputs);
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates;
  for (const auto& entry : std::filesystem::directory_iterator(test::golden("chat_templates/templates"))) {
    templates[entry.path().stem().string()] = ChatTemplate::parse(read_file(entry.path()), entry.path().string());
  }
  int checked = 0;
  for (const OrderedJson& record : read_ordered_lines("chat_templates/rendered.jsonl")) {
    const auto name = record.at("template").get<std::string>();
    const auto found = templates.find(name);
    if (name == "smollm2") continue;  // inside of a model file: SmolLm2FromItsModelFile
    ASSERT_NE(found, templates.end()) << name;
    SCOPED_TRACE(name + " / " + record.at("conversation").get<std::string>() +
                 (record.at("add_generation_prompt").get<bool>() ? " / generation prompt" : ""));
    check(*found->second, record, inputs, clock);
    ++checked;
  }
  EXPECT_EQ(checked, 264);
}

TEST(ChatTemplateGolden, SmolLm2FromItsModelFile) {
  PACER_PACKAGE_OR_SKIP(folder, "smollm2");
  std::filesystem::path model;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") model = entry.path();
  }
  ASSERT_FALSE(model.empty());
  const auto source = formats::GgufFile::open(model)->text("tokenizer.chat_template");
  const auto chat_template = ChatTemplate::parse(source, model.string() + " tokenizer.chat_template");
  const OrderedJson inputs = read_ordered("chat_templates/inputs.json");
  int checked = 0;
  for (const OrderedJson& record : read_ordered_lines("chat_templates/rendered.jsonl")) {
    if (record.at("template") != "smollm2") continue;
    SCOPED_TRACE(record.at("conversation").get<std::string>());
    check(*chat_template, record, inputs, clock_of(inputs));
    ++checked;
  }
  EXPECT_EQ(checked, 36);
}

TEST(ChatTemplateGolden, OneLineProbesGiveTheSameTextOrFail) {
  const OrderedJson messages = OrderedJson::parse(R"([{"role": "user", "content": "hi"}])");
  int checked = 0;
  for (const OrderedJson& record : read_ordered_lines("chat_templates/snippets.jsonl")) {
    const auto source = record.at("template").get<std::string>();
    SCOPED_TRACE(source);
    ++checked;
    if (record.contains("rendered")) {
      EXPECT_EQ(ChatTemplate::parse(source, "probe")->render(messages).text, record.at("rendered").get<std::string>());
      continue;
    }
    try {
      const std::string text = ChatTemplate::parse(source, "probe")->render(messages).text;
      ADD_FAILURE() << "rendered instead of failing: " << text;
    } catch (const Error& error) {
      EXPECT_FALSE(error.hint().empty());
      if (record.at("error_type") == "TemplateError") {
        EXPECT_EQ(error.what(), record.at("error").get<std::string>());
      } else {
        EXPECT_THAT(error.what(), ::testing::StartsWith("probe:1:")) << "the place is missing";
      }
      const bool syntax = record.at("error_type") == "TemplateSyntaxError" ||
                          record.at("error_type") == "TemplateAssertionError" ||
                          record.at("error_type") == "SyntaxError";
      EXPECT_EQ(error.kind(), syntax ? ErrorKind::format : ErrorKind::data) << error.what();
    }
  }
  EXPECT_EQ(checked, 69);
}

}  // namespace
}  // namespace pacer::text
