#include "pacer/text/reference_rules.h"

#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text {
namespace {

using Pattern = ReferenceFormat::Pattern;

struct Match {
  size_t begin = 0, end = 0;  // bytes
};

// "[Round 12] USER:" from `from` on; where it ends, or npos.
size_t end_of_round(const std::string& text, size_t from) {
  for (size_t at = text.find("[Round ", from); at != std::string::npos; at = text.find("[Round ", at + 1)) {
    size_t digits = at + 7;
    while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
    if (digits > at + 7 && text.compare(digits, 7, "] USER:") == 0) return digits + 7;
  }
  return std::string::npos;
}

size_t end_of_answer(const std::string& text, size_t from, const ReferenceFormat& format) {
  if (format.pattern == Pattern::longcat) return std::min(end_of_round(text, from), text.size());
  std::vector<std::string> marks = {format.end_of_turn};
  if (format.pattern == Pattern::inkling) marks = format.ignored;
  size_t end = text.size(), first = std::string::npos;
  for (const std::string& mark : marks) {
    const size_t at = text.find(mark, from);
    if (at < first) first = at, end = at + mark.size();
  }
  return end;
}

std::vector<Match> find_answers(const std::string& text, const ReferenceFormat& format) {
  std::vector<Match> out;
  size_t at = text.find(format.assistant_header);
  while (at != std::string::npos) {
    size_t begin = at + format.assistant_header.size();
    constexpr std::string_view kThinkEnd = "</think>";
    if (format.pattern == Pattern::glm && text.compare(begin, kThinkEnd.size(), kThinkEnd) == 0) {
      begin += kThinkEnd.size();
    }
    const size_t end = end_of_answer(text, begin, format);
    const bool prefixed =
        !format.answer_prefix.empty() && text.compare(begin, format.answer_prefix.size(), format.answer_prefix) == 0;
    out.push_back({prefixed ? begin + format.answer_prefix.size() : begin, end});
    at = text.find(format.assistant_header, end);
  }
  return out;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::data, what, "this rule drops or refuses such conversations; check the data");
}

std::string role_of(const OrderedJson& message) {
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) refuse("a message without 'role'");
  return role->get<std::string>();
}

OrderedJson deepspec_messages(const OrderedJson& messages, const ReferenceFormat& format) {
  OrderedJson out = OrderedJson::array();
  size_t first = 0;
  if (!messages.empty() && role_of(messages[0]) == "system") {
    out.push_back(messages[0]);
    first = 1;
  } else if (!format.system_prompt.empty()) {
    out.push_back({{"role", "system"}, {"content", format.system_prompt}});
  }
  for (size_t i = first; i < messages.size(); ++i) {
    const std::string role = role_of(messages[i]);
    if (i == first && role != "user") refuse("Conversation must start with user, got " + role + ".");
    out.push_back(messages[i]);
    if (role != "assistant" || format.answer_prefix.empty()) continue;
    OrderedJson& content = out.back()["content"];
    if (!content.is_string()) refuse("an answer whose content is not text");
    if (const auto text = content.get<std::string>(); !text.starts_with(format.answer_prefix)) {
      content = format.answer_prefix + text;
    }
  }
  return out;
}

// The first of two keys that is there.
const OrderedJson* either(const OrderedJson& message, const char* first, const char* second) {
  for (const char* key : {first, second}) {
    if (const auto found = message.find(key); found != message.end()) return &*found;
  }
  return nullptr;
}

// Calls reduced to what templates read; arguments that come as text are decoded, and are {} when they are not JSON.
OrderedJson tool_calls_of(OrderedJson calls) {
  if (calls.is_string()) {
    calls = OrderedJson::parse(calls.get<std::string>(), nullptr, /*allow_exceptions=*/false);
    if (calls.is_discarded()) return nullptr;
  }
  if (!calls.is_array()) return nullptr;
  OrderedJson out = OrderedJson::array();
  for (const OrderedJson& call : calls) {
    if (!call.is_object()) continue;
    OrderedJson kept = OrderedJson::object();
    for (const char* key : {"id", "type"}) {
      if (call.contains(key)) kept[key] = call[key];
    }
    if (const auto function = call.find("function"); function != call.end() && function->is_object()) {
      OrderedJson& target = kept["function"] = OrderedJson::object();
      if (function->contains("name")) target["name"] = (*function)["name"];
      OrderedJson arguments = function->value("arguments", OrderedJson::object());
      if (arguments.is_string()) {
        arguments = OrderedJson::parse(arguments.get<std::string>(), nullptr, /*allow_exceptions=*/false);
        if (arguments.is_discarded()) arguments = OrderedJson::object();
      }
      target["arguments"] = std::move(arguments);
    }
    out.push_back(std::move(kept));
  }
  return out;
}

OrderedJson specforge_message(const OrderedJson& message, const ReferenceFormat& format) {
  const OrderedJson* role = either(message, "role", "from");
  if (role == nullptr || !role->is_string()) refuse("a message without 'role' or 'from'");
  std::string name = role->get<std::string>();
  if (name == "human") name = "user";
  if (name == "gpt") name = "assistant";
  OrderedJson out = {{"role", name}, {"content", ""}};
  if (const OrderedJson* content = either(message, "content", "value"); content != nullptr && !content->is_null()) {
    out["content"] = *content;
  }
  if (name == "system") return out;
  if (message.contains("tool_calls")) {
    OrderedJson calls = tool_calls_of(message["tool_calls"]);
    if (!calls.is_null()) out["tool_calls"] = std::move(calls);
  }
  if (format.keeps_reasoning) {
    for (const char* key : {"reasoning_content", "name", "tool_call_id"}) {
      if (message.contains(key)) out[key] = message[key];
    }
  }
  return out;
}

OrderedJson specforge_messages(const OrderedJson& messages, const ReferenceFormat& format) {
  std::vector<OrderedJson> rest;
  for (const OrderedJson& message : messages) rest.push_back(specforge_message(message, format));
  OrderedJson out = OrderedJson::array();
  size_t at = 0;
  if (!rest.empty() && rest[0]["role"] == "system") {
    out.push_back(rest[at++]);
  } else if (!format.system_prompt.empty()) {
    out.push_back({{"role", "system"}, {"content", format.system_prompt}});
  }
  while (at < rest.size() && rest[at]["role"] != "user") ++at;
  std::string previous;
  for (; at < rest.size(); ++at) {
    const auto role = rest[at]["role"].get<std::string>();
    if (role == "tool" && previous != "assistant" && previous != "tool") break;
    if (role == "assistant" && previous != "user" && previous != "tool") break;
    out.push_back(rest[at]);
    previous = role;
  }
  return out;
}

}  // namespace

OrderedJson reference_messages(const OrderedJson& messages, const ReferenceFormat& format, ReferenceRule rule) {
  if (!messages.is_array()) refuse("the messages are not a list");
  for (const OrderedJson& message : messages) {
    if (!message.is_object()) refuse("a message that is not an object");
  }
  return rule == ReferenceRule::deepspec ? deepspec_messages(messages, format) : specforge_messages(messages, format);
}

SupervisedText supervise_by_reference(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                      const OrderedJson& messages, const ReferenceOptions& options) {
  const ReferenceFormat& format = reference_format(options.format);
  const OrderedJson given = reference_messages(messages, format, options.rule);
  RenderOptions render = options.render;
  render.add_generation_prompt = false;
  if (format.enable_thinking && options.rule != ReferenceRule::deepspec &&
      !render.variables.contains("enable_thinking")) {
    render.variables["enable_thinking"] = *format.enable_thinking;
  }

  SupervisedText out;
  out.text = chat_template.render(given, render).text;
  out.ids = tokenizer.encode(out.text).ids;
  out.ids.resize(std::min(out.ids.size(), static_cast<size_t>(options.max_length)));
  out.supervised.assign(out.ids.size(), 0);

  const auto tokens_before = [&](size_t bytes) {
    return std::min(tokenizer.encode(std::string_view(out.text).substr(0, bytes)).ids.size(), out.ids.size());
  };
  const auto mark = [&](const Match& match, uint8_t value) {
    const size_t begin = tokens_before(match.begin), end = tokens_before(match.end);
    for (size_t i = begin; i < end; ++i) out.supervised[i] = value;
  };

  std::vector<Match> matches = find_answers(out.text, format);
  const auto points = [&](size_t bytes) { return jinja::code_points(std::string_view(out.text).substr(0, bytes)); };
  if (options.messages_only) {
    const std::vector<LocatedAnswer> answers = locate_answers(chat_template, given, render, out.text);
    std::erase_if(matches, [&](const Match& match) {
      const int64_t begin = points(match.begin);
      return std::none_of(answers.begin(), answers.end(), [&](const LocatedAnswer& answer) {
        return answer.prompt_end <= begin && begin <= answer.content_end;
      });
    });
  }
  for (const Match& match : matches) out.spans.emplace_back(points(match.begin), points(match.end));
  if (options.rule == ReferenceRule::specforge_last_turn_only && !matches.empty()) matches = {matches.back()};
  for (const Match& match : matches) mark(match, 1);
  for (const std::string& text : format.ignored) {
    for (size_t at = out.text.find(text); at != std::string::npos; at = out.text.find(text, at + text.size())) {
      mark({at, at + text.size()}, 0);
    }
  }
  return out;
}

}  // namespace pacer::text
