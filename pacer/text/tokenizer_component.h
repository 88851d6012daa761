// A part of tokenizer.json and where it stands, so that every error can name its JSON path.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/text/tokenizer_regex.h"

namespace pacer::text {

// A view: the JSON must outlive it. All getters throw Error{format} on a wrong type, naming the path.
class Component {
 public:
  // The whole file; `place` is its name.
  static Component root(const OrderedJson& value, std::string place) {
    return Component(value, std::move(place), true);
  }

  const std::string& path() const { return path_; }
  const OrderedJson& json() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  std::string type() const { return text("type"); }
  bool has(const std::string& key) const;              // present and not null
  Component at_or_null(const std::string& key) const;  // a JSON null when absent
  Component at(const std::string& key) const;
  std::vector<Component> list(const std::string& key) const;  // elements of an array
  std::string text(const std::string& key) const;
  std::string text_or(const std::string& key, const std::string& otherwise) const;  // otherwise: absent or null
  bool flag_or(const std::string& key, bool otherwise) const;
  bool flag(const std::string& key) const;
  int64_t integer(const std::string& key) const;
  // A text of exactly one code point.
  char32_t character(const std::string& key) const;

  // Error{format}: "PATH.key: found; allowed: ...".
  [[noreturn]] void refuse_type(std::initializer_list<std::string_view> allowed) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const;

 private:
  Component(const OrderedJson& value, std::string path, bool is_root)
      : value_(&value), path_(std::move(path)), is_root_(is_root) {}
  std::string child(const std::string& key) const;
  [[noreturn]] void wrong_type(const std::string& key, std::string_view expected) const;
  void require_object(const std::string& key) const;
  const OrderedJson* value_;
  std::string path_;  // "tokenizer.json: model.vocab"
  bool is_root_;
};

// {"String": "..."} or {"Regex": "..."}.
Pattern make_pattern(const Component& config);

}  // namespace pacer::text
