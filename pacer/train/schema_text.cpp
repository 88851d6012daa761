// The schema and a recipe as text: for messages, documentation, `pacer config` and the run folder.
#include <charconv>
#include <cmath>
#include <sstream>

#include "pacer/train/schema.h"

namespace pacer::train {
namespace {

template <typename... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <typename... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;  // implied in C++20; clang 14 does not know that yet

std::string number_text(double value) {
  char buffer[64];
  // 10000000, not 1e+07: both are read, one is easier to read.
  if (std::abs(value) < 1e15 && value == std::floor(value)) return std::to_string(static_cast<int64_t>(value));
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;  // shortest that reads back the same
  return std::string(buffer, end);
}

std::string quoted(const std::string& text) { return Json(text).dump(); }  // JSON's escapes are YAML's

// Words need no quotes; what YAML could take for something else does.
std::string text_value(const std::string& text) {
  const bool word =
      !text.empty() && std::isalpha(static_cast<unsigned char>(text.front())) != 0 &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") == std::string::npos;
  const bool special = text == "null" || text == "true" || text == "false" || text == "Null" || text == "NULL";
  return word && !special ? text : quoted(text);
}

// The recipe behind a const reference: slots are written for both directions, reading changes nothing.
template <typename T>
const T& read(const Member<T>& member, const Recipe& recipe) {
  return member(const_cast<Recipe&>(recipe));
}

}  // namespace

std::string Key::section() const {
  const size_t dot = name.find('.');
  return dot == std::string::npos ? std::string() : name.substr(0, dot);
}

std::string Key::leaf() const { return name.substr(name.find('.') + 1); }  // npos + 1 is 0

std::string Key::type() const {
  return std::visit(
      Overloaded{[](const Member<int64_t>&) { return "whole number"; }, [](const Member<double>&) { return "number"; },
                 [](const Member<bool>&) { return "true or false"; }, [](const Member<std::string>&) { return "text"; },
                 [](const Member<std::optional<int64_t>>&) { return "whole number or null"; },
                 [](const Member<std::optional<double>>&) { return "number or null"; },
                 [](const Member<std::optional<std::string>>&) { return "text or null"; },
                 [](const Member<std::vector<int64_t>>&) { return "list of whole numbers"; },
                 [](const Member<std::map<std::string, double>>&) { return "mapping of text to number"; },
                 [](const Member<std::map<std::string, std::string>>&) { return "mapping of text to text"; }},
      slot);
}

std::string Key::allowed() const {
  std::ostringstream text;
  if (!choices.empty()) {
    for (const std::string& choice : choices) text << (text.tellp() > 0 ? ", " : "") << choice;
    return text.str();
  }
  if (std::isfinite(least)) text << (above ? "above " : "at least ") << number_text(least);
  if (std::isfinite(most)) text << (text.tellp() > 0 ? ", " : "") << "at most " << number_text(most);
  return text.str();
}

Json value_json(const Key& key, const Recipe& recipe) {
  return std::visit(
      [&](const auto& member) -> Json {
        const auto& value = read(member, recipe);
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, std::optional<int64_t>> || std::is_same_v<T, std::optional<double>> ||
                      std::is_same_v<T, std::optional<std::string>>) {
          return value ? Json(*value) : Json();
        } else {
          return Json(value);
        }
      },
      key.slot);
}

std::string value_text(const Key& key, const Recipe& recipe) {
  const auto list = [](const auto& values, char open, char close, const auto& item) {
    std::string text(1, open);
    for (const auto& value : values) text += (text.size() > 1 ? ", " : "") + item(value);
    return text + close;
  };
  return std::visit(
      Overloaded{[&](const Member<int64_t>& m) { return std::to_string(read(m, recipe)); },
                 [&](const Member<double>& m) { return number_text(read(m, recipe)); },
                 [&](const Member<bool>& m) { return std::string(read(m, recipe) ? "true" : "false"); },
                 [&](const Member<std::string>& m) { return text_value(read(m, recipe)); },
                 [&](const Member<std::optional<int64_t>>& m) {
                   const auto& value = read(m, recipe);
                   return value ? std::to_string(*value) : "null";
                 },
                 [&](const Member<std::optional<double>>& m) {
                   const auto& value = read(m, recipe);
                   return value ? number_text(*value) : "null";
                 },
                 [&](const Member<std::optional<std::string>>& m) {
                   const auto& value = read(m, recipe);
                   return value ? text_value(*value) : "null";
                 },
                 [&](const Member<std::vector<int64_t>>& m) {
                   return list(read(m, recipe), '[', ']', [](int64_t value) { return std::to_string(value); });
                 },
                 [&](const Member<std::map<std::string, double>>& m) {
                   return list(read(m, recipe), '{', '}', [](const auto& entry) {
                     return quoted(entry.first) + ": " + number_text(entry.second);
                   });
                 },
                 [&](const Member<std::map<std::string, std::string>>& m) {
                   return list(read(m, recipe), '{', '}',
                               [](const auto& entry) { return quoted(entry.first) + ": " + text_value(entry.second); });
                 }},
      key.slot);
}

std::string default_text(const Key& key) { return key.required ? "(required)" : value_text(key, Recipe{}); }

std::string schema_markdown() {
  std::ostringstream text;
  std::string section = "?";
  for (const Key& key : schema()) {
    if (key.section() != section) {
      section = key.section();
      text << (text.tellp() > 0 ? "\n" : "") << "### " << (section.empty() ? "Keys without a section" : section)
           << "\n\n| key | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n";
    }
    const std::string fallback = key.required ? "required" : "`" + default_text(key) + "`";
    text << "| `" << key.name << "` | " << key.type() << " | " << fallback << " | " << key.allowed() << " | " << key.doc
         << " |\n";
  }
  return text.str();
}

OrderedJson schema_json() {
  OrderedJson keys = OrderedJson::array();
  for (const Key& key : schema()) {
    OrderedJson entry = {{"key", key.name}, {"type", key.type()}, {"required", key.required}};
    if (!key.required) entry["default"] = value_json(key, Recipe{});
    if (!key.choices.empty()) entry["choices"] = key.choices;
    if (std::isfinite(key.least)) entry[key.above ? "exclusive_minimum" : "minimum"] = key.least;
    if (std::isfinite(key.most)) entry["maximum"] = key.most;
    entry["meaning"] = key.doc;
    keys.push_back(std::move(entry));
  }
  return {{"schema", "pacer-recipe"}, {"version", 1}, {"keys", std::move(keys)}};
}

std::string resolved_yaml(const ResolvedRecipe& resolved) {
  std::ostringstream text;
  std::string section;
  for (const Key& key : schema()) {
    if (key.section() != section) {
      section = key.section();
      if (text.tellp() > 0) text << "\n";
      if (!section.empty()) text << section << ":\n";
    }
    // A required key without a value is one that this method does not read.
    const bool unsaid = (key.is_a_wish || key.required) && resolved.origins.at(key.name) == "default";
    const std::string line = std::string(section.empty() ? "" : "  ") + (unsaid ? "# " : "") + key.leaf() + ": " +
                             value_text(key, resolved.recipe);
    constexpr size_t kCommentColumn = 44;
    text << line << std::string(line.size() < kCommentColumn ? kCommentColumn - line.size() : 1, ' ') << "# "
         << resolved.origins.at(key.name) << "\n";
  }
  return text.str();
}

OrderedJson resolved_json(const ResolvedRecipe& resolved) {
  OrderedJson values = OrderedJson::object(), origins = OrderedJson::object();
  for (const Key& key : schema()) {
    const OrderedJson value = value_json(key, resolved.recipe);
    (key.section().empty() ? values : values[key.section()])[key.leaf()] = value;
    origins[key.name] = resolved.origins.at(key.name);
  }
  return {{"recipe", std::move(values)}, {"origins", std::move(origins)}};
}

}  // namespace pacer::train
