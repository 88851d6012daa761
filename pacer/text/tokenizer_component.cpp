#include "pacer/text/tokenizer_component.h"

#include "pacer/text/tokenizer_text.h"

namespace pacer::text {

void Component::refuse(const std::string& what, const std::string& hint) const {
  throw Error(ErrorKind::format, path_ + ": " + what, hint);
}

void Component::wrong_type(const std::string& key, std::string_view expected) const {
  const auto found = value_->find(key);
  throw Error(ErrorKind::format,
              child(key) + ": " + std::string(expected) + " expected, found " +
                  (found == value_->end() ? "nothing" : found->type_name()),
              "the file is damaged, or written by a newer tool than this version of Pacer knows");
}

void Component::refuse_type(std::initializer_list<std::string_view> allowed) const {
  std::string list;
  for (const auto& name : allowed) list += (list.empty() ? "" : ", ") + std::string(name);
  throw Error(ErrorKind::format, child("type") + ": \"" + type() + "\" is not supported; supported: " + list,
              "text would be cut differently without it, so nothing is put in its place");
}

void Component::require_object(const std::string& key) const {
  if (!value_->is_object()) refuse("an object with \"" + key + "\" expected, found " + value_->type_name());
}

std::string Component::child(const std::string& key) const { return path_ + (is_root_ ? ": " : ".") + key; }

bool Component::has(const std::string& key) const {
  require_object(key);
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

Component Component::at(const std::string& key) const {
  if (!has(key)) wrong_type(key, "a value");
  return Component(*value_->find(key), child(key), false);
}

Component Component::at_or_null(const std::string& key) const {
  static const OrderedJson null;
  return has(key) ? at(key) : Component(null, child(key), false);
}

std::vector<Component> Component::list(const std::string& key) const {
  const Component array = at(key);
  if (!array.value_->is_array()) wrong_type(key, "an array");
  std::vector<Component> elements;
  elements.reserve(array.value_->size());
  for (size_t i = 0; i < array.value_->size(); ++i) {
    elements.push_back(Component((*array.value_)[i], array.path_ + "[" + std::to_string(i) + "]", false));
  }
  return elements;
}

std::string Component::text(const std::string& key) const {
  if (!has(key) || !value_->find(key)->is_string()) wrong_type(key, "a string");
  return value_->find(key)->get<std::string>();
}

std::string Component::text_or(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool Component::flag(const std::string& key) const {
  if (!has(key) || !value_->find(key)->is_boolean()) wrong_type(key, "true or false");
  return value_->find(key)->get<bool>();
}

bool Component::flag_or(const std::string& key, bool otherwise) const { return has(key) ? flag(key) : otherwise; }

int64_t Component::integer(const std::string& key) const {
  if (!has(key) || !value_->find(key)->is_number_integer()) wrong_type(key, "a whole number");
  const auto& number = *value_->find(key);
  if (number.is_number_unsigned() && number.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    wrong_type(key, "a whole number below 2^63");
  }
  return number.get<int64_t>();
}

char32_t Component::character(const std::string& key) const {
  const std::string value = text(key);
  if (value.empty() || decode_utf8(value, 0).length != value.size()) wrong_type(key, "one character");
  return decode_utf8(value, 0).value;
}

Pattern make_pattern(const Component& config) {
  if (config.has("Regex")) return Pattern::regex(config.text("Regex"), config.path() + ".Regex");
  if (!config.has("String")) config.refuse("\"String\" or \"Regex\" expected");
  const std::string literal = config.text("String");
  if (literal.empty()) config.refuse("an empty pattern");
  return Pattern::literal(literal);
}

}  // namespace pacer::text
