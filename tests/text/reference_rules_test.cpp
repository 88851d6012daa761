#include "pacer/text/reference_rules.h"

#include <gmock/gmock.h>

#include <map>
#include <sstream>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

using ::testing::HasSubstr;

// One record of loss_masks.jsonl and what it was made from.
class LossMasks : public ::testing::Test {
 protected:
  LossMasks() {
    const std::string inputs = "chat_templates/loss_mask_inputs.json";
    conversations_ = parse_ordered_json(read_file(test::golden(inputs)), inputs).at("conversations");
    std::istringstream lines(read_file(test::golden("chat_templates/loss_masks.jsonl")));
    for (std::string line; std::getline(lines, line);) records_.push_back(parse_ordered_json(line, "loss_masks.jsonl"));
  }

  const ChatTemplate& chat_template(const OrderedJson& record) {
    auto& found = templates_[record.at("chat_template").get<std::string>()];
    if (!found) {
      const auto path =
          test::golden("chat_templates/templates/" + record.at("chat_template").get<std::string>() + ".jinja");
      found = ChatTemplate::parse(read_file(path), path.string());
    }
    return *found;
  }

  const Tokenizer& tokenizer(const OrderedJson& record) {
    auto& found = tokenizers_[record.at("tokenizer").get<std::string>()];
    if (!found) found = Tokenizer::load(test::golden("tokenizers/" + record.at("tokenizer").get<std::string>()));
    return *found;
  }

  const OrderedJson& conversation(const OrderedJson& record) {
    return conversations_.at(record.at("conversation").get<std::string>());
  }

  static ReferenceOptions options(const OrderedJson& record) {
    static const std::map<std::string, ReferenceRule> kRules = {
        {"deepspec", ReferenceRule::deepspec},
        {"specforge", ReferenceRule::specforge},
        {"specforge_last_turn_only", ReferenceRule::specforge_last_turn_only}};
    ReferenceOptions out;
    out.rule = kRules.at(record.at("rule").get<std::string>());
    out.format = record.at("parser_template").get<std::string>();
    out.max_length = record.at("max_length").get<int64_t>();
    out.render.variables["bos_token"] = "<|begin_of_text|>";
    std::tm clock{};  // the clock of inputs.json: the date is part of a rendered text
    const auto inputs = test::golden_json("chat_templates/inputs.json");
    std::istringstream date(inputs.at("clock").get<std::string>());
    int year = 0, month = 0;
    char dash = 0;
    date >> year >> dash >> month >> dash >> clock.tm_mday;
    clock.tm_year = year - 1900, clock.tm_mon = month - 1;
    out.render.clock = clock;
    return out;
  }

  static std::string name(const OrderedJson& record) {
    return record.at("rule").get<std::string>() + " / " + record.at("chat_template").get<std::string>() + " / " +
           record.at("conversation").get<std::string>() + " / " + record.at("max_length").dump();
  }

  OrderedJson conversations_;
  std::vector<OrderedJson> records_;
  std::map<std::string, std::shared_ptr<const ChatTemplate>> templates_;
  std::map<std::string, std::shared_ptr<const Tokenizer>> tokenizers_;
};

TEST_F(LossMasks, EqualThoseOfTheReferences) {
  int masks = 0, refusals = 0;
  for (const OrderedJson& record : records_) {
    SCOPED_TRACE(name(record));
    if (record.contains("error")) {
      EXPECT_THROW(
          supervise_by_reference(chat_template(record), tokenizer(record), conversation(record), options(record)),
          Error);
      ++refusals;
      continue;
    }
    const SupervisedText text =
        supervise_by_reference(chat_template(record), tokenizer(record), conversation(record), options(record));
    EXPECT_EQ(text.text, record.at("rendered").get<std::string>());
    EXPECT_EQ(text.ids, record.at("input_ids").get<std::vector<int64_t>>());
    EXPECT_EQ(text.supervised, record.at("loss_mask").get<std::vector<uint8_t>>());
    EXPECT_EQ(text.spans, record.at("supervised_char_spans").get<std::vector<Span>>());
    ++masks;
  }
  EXPECT_EQ(masks, 85);
  EXPECT_EQ(refusals, 6);
}

TEST_F(LossMasks, ByOffsetsEqualThoseByPrefixes) {
  for (const OrderedJson& record : records_) {
    if (record.contains("error")) continue;
    SCOPED_TRACE(name(record));
    const auto encoding = tokenizer(record).encode(record.at("rendered").get<std::string>(),
                                                   {.add_special_tokens = false, .offsets = true});
    auto spans = record.at("supervised_char_spans").get<std::vector<Span>>();
    if (record.at("rule") == "specforge_last_turn_only" && !spans.empty()) spans = {spans.back()};
    auto mask = tokens_inside(encoding.offsets, spans);
    mask.resize(std::min(mask.size(), record.at("max_length").get<size_t>()));
    EXPECT_EQ(mask, record.at("loss_mask_by_offsets").get<std::vector<uint8_t>>());
  }
}

TEST_F(LossMasks, RealMessagesOnlyWhenAsked) {
  int checked = 0, different = 0;
  for (const OrderedJson& record : records_) {
    if (!record.contains("loss_mask_message_aware")) continue;
    SCOPED_TRACE(name(record));
    ReferenceOptions aware = options(record);
    aware.messages_only = true;
    const SupervisedText text =
        supervise_by_reference(chat_template(record), tokenizer(record), conversation(record), aware);
    EXPECT_EQ(text.supervised, record.at("loss_mask_message_aware").get<std::vector<uint8_t>>());
    EXPECT_EQ(text.spans, record.at("assistant_message_char_spans").get<std::vector<Span>>());
    ++checked;
    different += text.supervised != record.at("loss_mask").get<std::vector<uint8_t>>() ? 1 : 0;
  }
  EXPECT_EQ(checked, 22);
  EXPECT_GT(different, 0) << "no conversation in which a user types a header";
}

// Pacer's own rule on the same conversations: the same answers, and the terminator without the newline behind it.
TEST_F(LossMasks, OwnRuleLearnsTheSameAnswersUpToTheirTerminator) {
  for (const OrderedJson& record : records_) {
    if (!record.contains("assistant_message_char_spans")) continue;
    SCOPED_TRACE(name(record));
    const OrderedJson given =
        reference_messages(conversation(record), reference_format("qwen"), ReferenceRule::deepspec);
    SupervisionOptions own;
    own.max_length = record.at("max_length").get<int64_t>();
    const SupervisedText text = supervise(chat_template(record), tokenizer(record), given, own);
    auto spans = record.at("assistant_message_char_spans").get<std::vector<Span>>();
    for (Span& span : spans) span.second -= 1;
    EXPECT_EQ(text.spans, spans);
    EXPECT_EQ(text.ids, record.at("input_ids").get<std::vector<int64_t>>());
  }
}

// Roles: S system, U user, A assistant, T tool, X another one.
TEST(ReferenceMessages, RoleOrderCutsAsPublished) {
  const std::map<char, std::string> names = {
      {'S', "system"}, {'U', "user"}, {'A', "assistant"}, {'T', "tool"}, {'X', "critic"}};
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"UA", "UA"}, {"AUA", "UA"},      {"SUA", "SUA"},     {"S", "S"},      {"", ""},  {"UUA", "UUA"}, {"UAA", "UA"},
      {"UTA", "U"}, {"UATTA", "UATTA"}, {"UASUA", "UASUA"}, {"UAXA", "UAX"}, {"A", ""}, {"SA", "S"}};
  const ReferenceFormat format = reference_format("lfm");  // has no system prompt of its own
  for (const auto& [given, kept] : cases) {
    OrderedJson messages = OrderedJson::array();
    for (const char role : given) messages.push_back({{"role", names.at(role)}, {"content", "x"}});
    std::string out;
    for (const OrderedJson& message : reference_messages(messages, format, ReferenceRule::specforge)) {
      for (const auto& [letter, name] : names) {
        if (message.at("role") == name) out += letter;
      }
    }
    EXPECT_EQ(out, kept) << given;
  }
}

TEST(ReferenceMessages, ReducesToolCallsAndDecodesTheirArguments) {
  const OrderedJson messages = OrderedJson::parse(R"([{"role": "user", "content": null},
    {"role": "assistant", "content": "", "extra": 1, "reasoning_content": "r", "tool_calls":
      "[{\"id\": \"1\", \"type\": \"function\", \"junk\": 0, \"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}}]"},
    {"role": "tool", "content": "t", "tool_call_id": "1"}])");
  EXPECT_EQ(
      reference_messages(messages, reference_format("lfm"), ReferenceRule::specforge).dump(),
      R"([{"role":"user","content":""},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function",)"
      R"("function":{"name":"f","arguments":{"a":1}}}]},{"role":"tool","content":"t"}])");
  const OrderedJson thinking = reference_messages(messages, reference_format("qwen3.5"), ReferenceRule::specforge);
  EXPECT_EQ(thinking[1].at("reasoning_content"), "r");
  EXPECT_EQ(thinking[2].at("tool_call_id"), "1");
}

TEST(ReferenceFormats, NamesAreUniqueAndEveryOneEndsItsTurns) {
  std::map<std::string, int> seen;
  for (const std::string& name : reference_format_names()) {
    EXPECT_EQ(++seen[name], 1) << name;
    EXPECT_FALSE(reference_format(name).assistant_header.empty()) << name;
    EXPECT_FALSE(reference_format(name).end_of_turn.empty()) << name;
  }
  try {
    reference_format("qwen33");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_THAT(error.hint(), HasSubstr("qwen3-instruct"));
  }
}

TEST(ReferenceFormats, IgnoredTextsAndOtherEndings) {
  const auto tokenizer = Tokenizer::load(test::golden("tokenizers/tiny_qwen_style"));
  const auto learnt = [&](const std::string& format, const std::string& text) {
    const auto fixed = ChatTemplate::parse("{{ messages[-1].content }}", "fixed");
    ReferenceOptions options;
    options.rule = ReferenceRule::specforge;
    options.format = format;
    const OrderedJson messages = {{{"role", "user"}, {"content", text}}};
    const SupervisedText result = supervise_by_reference(*fixed, *tokenizer, messages, options);
    std::vector<int64_t> ids;
    for (size_t i = 0; i < result.ids.size(); ++i) {
      if (result.supervised[i] != 0) ids.push_back(result.ids[i]);
    }
    return tokenizer->decode(ids);
  };
  EXPECT_EQ(learnt("qwen3-instruct", "<|im_start|>assistant\n<think>\n\n</think>\n\nyes<|im_end|>\n"),
            "yes<|im_end|>\n");
  EXPECT_EQ(learnt("qwen", "<|im_start|>assistant\nno end"), "no end");
  EXPECT_EQ(learnt("glm-5.2", "<|assistant|><think></think>yes<|user|>more"), "yes");
  EXPECT_EQ(learnt("longcat", " ASSISTANT:yes[Round x] USER: [Round 12] USER:more"),
            "yes[Round x] USER: [Round 12] USER:");
  EXPECT_EQ(learnt("inkling-thinking", "<|message_model|>yes<|message_tool|>more"), "yes");
}

}  // namespace
}  // namespace pacer::text
