// The one place that says what a recipe may contain: every key with its type, range, default and meaning.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <variant>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

template <typename T>
using Member = std::function<T&(Recipe&)>;  // where the value of a key lives in a recipe

using Slot =
    std::variant<Member<int64_t>, Member<double>, Member<bool>, Member<std::string>, Member<std::optional<int64_t>>,
                 Member<std::optional<double>>, Member<std::optional<std::string>>, Member<std::vector<int64_t>>,
                 Member<std::map<std::string, double>>, Member<std::map<std::string, std::string>>>;

struct Key {
  std::string name;  // "optimizer.learning_rate", or a word for the keys without a section
  Slot slot;
  std::string doc;  // one sentence for a person
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool above = false;                // the least value itself is not allowed
  std::vector<std::string> choices;  // of a text, or of the texts of a mapping; empty: any
  bool required = false;
  // Whether a run may be continued with another value: only what cannot change a bit of the result.
  bool may_change = false;
  // Whether writing the key down contradicts another key even with its default value (a Markov head for DFlash). A
  // resolved recipe shows such a default as a comment, so that it can be read again.
  bool is_a_wish = false;

  std::string section() const;  // empty for the keys without one
  std::string leaf() const;
  std::string type() const;     // "whole number", "number", "true or false", "text", ...
  std::string allowed() const;  // "above 0, at most 1"; empty when everything is
};

const std::vector<Key>& schema();              // in the order of the documentation
const Key* find_key(const std::string& name);  // null when there is none

// Value of a key as YAML on one line: what a recipe would say to get it. "null" for an optional value that is absent.
std::string value_text(const Key& key, const Recipe& recipe);
Json value_json(const Key& key, const Recipe& recipe);
std::string default_text(const Key& key);  // "(required)" for those without

std::string schema_markdown();                              // the tables of docs/recipes.md
OrderedJson schema_json();                                  // for programs
std::string resolved_yaml(const ResolvedRecipe& resolved);  // the whole recipe, every line with its origin
OrderedJson resolved_json(const ResolvedRecipe& resolved);

}  // namespace pacer::train
