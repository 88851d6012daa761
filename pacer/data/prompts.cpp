#include "pacer/data/prompts.h"

#include <optional>
#include <unordered_map>

#include "pacer/base/files.h"
#include "pacer/data/json_lines.h"

namespace pacer::data {
namespace {

constexpr size_t kMostTurns = 256;

// A reason to leave a row out; thrown inside this file only.
struct BadRow {
  std::string reason;
};

std::string text_of(const OrderedJson& object, const char* first, const char* second) {
  for (const char* key : {first, second}) {
    const auto found = object.find(key);
    if (found == object.end()) continue;
    if (!found->is_string()) throw BadRow{"content is not text"};
    return found->get<std::string>();
  }
  throw BadRow{"a message without role or content"};
}

std::string role_of(const OrderedJson& message) {
  if (!message.is_object()) throw BadRow{"a message that is not an object"};
  const std::string role = text_of(message, "role", "from");
  if (role == "human") return "user";
  if (role == "gpt") return "assistant";
  return role;
}

OrderedJson tools_of(const OrderedJson& row) {
  const auto found = row.find("tools");
  if (found == row.end() || found->is_null()) return nullptr;
  if (found->is_array()) return *found;
  if (found->is_string()) {
    try {
      OrderedJson parsed = parse_ordered_json(found->get<std::string>(), "tools", ErrorKind::data);
      if (parsed.is_array()) return parsed;
    } catch (const Error&) {
      throw BadRow{"tools are not JSON"};
    }
  }
  throw BadRow{"tools are not a list"};
}

// Walks the roles: system only in front, then user and assistant in turn; tool results belong to the answer before.
// Returns the reason of the first violation, after which nothing is taken.
std::optional<std::string> take_messages(const OrderedJson& messages, Prompt& prompt) {
  bool expects_user = true;
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string role = role_of(messages[i]);
    if (role == "system") {
      if (i != 0) return "a system message behind the first";
      prompt.system = text_of(messages[i], "content", "value");
    } else if (role == "user") {
      if (!expects_user) return "two user messages in a row";
      prompt.turns.push_back(text_of(messages[i], "content", "value"));
      expects_user = false;
    } else if (role == "assistant") {
      if (expects_user) return prompt.turns.empty() ? "an assistant first" : "two assistant messages in a row";
      expects_user = true;
    } else if (role == "tool") {
      return "a tool message: its call cannot be replayed";
    } else {
      return "unknown role";
    }
  }
  return std::nullopt;
}

// The prompt of a row, and the reason why it was cut, if it was.
std::pair<Prompt, std::optional<std::string>> read_row(const OrderedJson& row) {
  if (!row.is_object()) throw BadRow{"not an object"};
  Prompt prompt;
  std::optional<std::string> violation;
  if (const auto id = row.find("id"); id != row.end())
    prompt.id = id->is_string() ? id->get<std::string>() : id->dump();
  prompt.tools = tools_of(row);
  if (const auto turns = row.find("turns"); turns != row.end()) {
    if (!turns->is_array()) throw BadRow{"turns is not a list"};
    for (const auto& turn : *turns) {
      if (!turn.is_string()) throw BadRow{"content is not text"};
      prompt.turns.push_back(turn.get<std::string>());
    }
  } else if (const auto text = row.find("prompt"); text != row.end()) {
    if (!text->is_string()) throw BadRow{"content is not text"};
    prompt.turns.push_back(text->get<std::string>());
  } else {
    const auto messages = row.contains("messages") ? row.find("messages") : row.find("conversations");
    if (messages == row.end()) throw BadRow{"no messages, conversations, turns or prompt"};
    if (!messages->is_array()) throw BadRow{"messages is not a list"};
    violation = take_messages(*messages, prompt);
  }
  if (prompt.turns.empty()) throw BadRow{violation.value_or("no user message")};
  if (prompt.turns.size() > kMostTurns) throw BadRow{"more than " + std::to_string(kMostTurns) + " turns"};
  return {std::move(prompt), violation};
}

}  // namespace

BadRowPolicy parse_bad_row_policy(const std::string& name) {
  if (name == "truncate") return BadRowPolicy::truncate;
  if (name == "drop") return BadRowPolicy::drop;
  if (name == "error") return BadRowPolicy::error;
  throw Error(ErrorKind::usage, "bad-row policy '" + name + "': not one of truncate, drop, error");
}

OrderedJson Prompt::messages(size_t turn, const std::vector<std::string>& answers) const {
  if (turn >= turns.size() || answers.size() < turn) {
    throw Error(ErrorKind::bug, "prompt " + id + ": turn " + std::to_string(turn) + " with " +
                                    std::to_string(answers.size()) + " answers before it");
  }
  OrderedJson list = OrderedJson::array();
  if (!system.empty()) list.push_back({{"role", "system"}, {"content", system}});
  for (size_t i = 0; i <= turn; ++i) {
    list.push_back({{"role", "user"}, {"content", turns[i]}});
    if (i < turn) list.push_back({{"role", "assistant"}, {"content", answers[i]}});
  }
  return list;
}

Prompts read_prompts(const std::filesystem::path& path, BadRowPolicy policy) {
  Prompts result;
  std::unordered_map<std::string, int64_t> line_of_id;
  for_each_json_row(path, [&](int64_t line, const std::optional<OrderedJson>& row) {
    const std::string place = path.string() + ":" + std::to_string(line);
    const auto leave_out = [&](const std::string& reason) {
      if (policy == BadRowPolicy::error) {
        throw Error(ErrorKind::data, place + ": " + reason, "mend the row, or choose the policy 'drop' or 'truncate'");
      }
      result.problems.lines_by_reason[reason].push_back(line);
    };
    if (!row) return leave_out("not JSON");
    try {
      auto [prompt, violation] = read_row(*row);
      if (violation) {
        leave_out(*violation);
        if (policy == BadRowPolicy::drop) return;
      }
      prompt.line = line;
      if (prompt.id.empty()) prompt.id = "line-" + std::to_string(line);
      const auto [other, fresh] = line_of_id.emplace(prompt.id, line);
      if (!fresh) {
        throw Error(ErrorKind::data,
                    place + ": the id '" + prompt.id + "' stands in line " + std::to_string(other->second) + " already",
                    "answers are found again by id: give every row its own");
      }
      result.prompts.push_back(std::move(prompt));
    } catch (const BadRow& bad) {
      leave_out(bad.reason);
    }
  });
  if (result.prompts.empty()) {
    throw Error(ErrorKind::data,
                path.string() + ": no usable prompt among " + std::to_string(result.problems.dropped()) + " rows" +
                    result.problems.summary(),
                "a row is {\"messages\": [{\"role\": \"user\", \"content\": \"...\"}]} or {\"turns\": [\"...\"]}");
  }
  return result;
}

}  // namespace pacer::data
