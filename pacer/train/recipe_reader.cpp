#include "pacer/train/recipe_reader.h"

#include <algorithm>
#include <cmath>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/nearest.h"
#include "pacer/train/schema.h"
#include "pacer/train/values.h"
#include "pacer/train/yaml_tree.h"

namespace pacer::train {
namespace {

std::string at_place(const std::string& place, const YamlNode& node) {
  return place + ":" + std::to_string(node.line) + ":" + std::to_string(node.column);
}

// What is being read and where messages point.
struct Reader {
  ResolvedRecipe& resolved;
  const std::string& place;

  [[noreturn]] void fail(const YamlNode& node, const std::string& what, const std::string& hint) const {
    throw Error(ErrorKind::usage, at_place(place, node) + ": " + what, hint);
  }

  [[noreturn]] void fail_value(const Key& key, const YamlNode& node) const {
    const std::string range = key.allowed();
    const std::string expected = key.choices.empty() ? key.type() + (range.empty() ? "" : ", " + range) : range;
    std::string hint = key.name + ": " + key.doc;
    if (!key.choices.empty() && node.kind == YamlNode::Kind::scalar) {
      const std::string near = did_you_mean(node.text, key.choices);
      if (!near.empty()) hint = "did you mean '" + near + "'?";
    }
    fail(node, key.name + " is " + describe(node) + "; allowed: " + expected, hint);
  }

  void set(const Key& key, const YamlNode& node) const {
    Recipe& recipe = resolved.recipe;
    std::visit([&](const auto& member) { assign(key, node, member(recipe)); }, key.slot);
  }

  void assign(const Key& key, const YamlNode& node, int64_t& value) const { value = whole(key, node); }
  void assign(const Key& key, const YamlNode& node, double& value) const { value = number(key, node); }
  void assign(const Key& key, const YamlNode& node, std::string& value) const { value = text(key, node); }
  void assign(const Key& key, const YamlNode& node, bool& value) const {
    if (node.kind != YamlNode::Kind::scalar || node.quoted || (node.text != "true" && node.text != "false")) {
      fail_value(key, node);
    }
    value = node.text == "true";
  }
  void assign(const Key& key, const YamlNode& node, std::optional<int64_t>& value) const {
    value.reset();
    if (node.kind != YamlNode::Kind::null) value = whole(key, node);
  }
  void assign(const Key& key, const YamlNode& node, std::optional<double>& value) const {
    value.reset();
    if (node.kind != YamlNode::Kind::null) value = number(key, node);
  }
  void assign(const Key& key, const YamlNode& node, std::optional<std::string>& value) const {
    value.reset();
    if (node.kind != YamlNode::Kind::null) value = text(key, node);
  }
  void assign(const Key& key, const YamlNode& node, std::vector<int64_t>& values) const {
    if (node.kind != YamlNode::Kind::sequence) fail_value(key, node);
    values.clear();
    for (const YamlNode& item : node.items) values.push_back(whole(key, item));
  }
  void assign(const Key& key, const YamlNode& node, std::map<std::string, double>& values) const {
    if (node.kind != YamlNode::Kind::map) fail_value(key, node);
    values.clear();
    for (size_t i = 0; i < node.keys.size(); ++i) values[node.keys[i].text] = number(key, node.items[i]);
  }

  void assign(const Key& key, const YamlNode& node, std::map<std::string, std::string>& values) const {
    if (node.kind != YamlNode::Kind::map) fail_value(key, node);
    values.clear();
    for (size_t i = 0; i < node.keys.size(); ++i) values[node.keys[i].text] = text(key, node.items[i]);
  }

  double number(const Key& key, const YamlNode& node) const {
    const auto value = node.kind == YamlNode::Kind::scalar && !node.quoted ? parse_number(node.text) : std::nullopt;
    if (!value || *value < key.least || *value > key.most || (key.above && *value == key.least)) fail_value(key, node);
    return *value;
  }

  int64_t whole(const Key& key, const YamlNode& node) const {
    const auto value = node.kind == YamlNode::Kind::scalar && !node.quoted ? parse_whole(node.text) : std::nullopt;
    if (!value || static_cast<double>(*value) < key.least || static_cast<double>(*value) > key.most) {
      fail_value(key, node);
    }
    return *value;
  }

  std::string text(const Key& key, const YamlNode& node) const {
    if (node.kind != YamlNode::Kind::scalar || node.text.empty()) fail_value(key, node);
    if (!key.choices.empty() && std::ranges::find(key.choices, node.text) == key.choices.end()) fail_value(key, node);
    return node.text;
  }

  // One entry of a section, or of the top level when `section` is empty.
  void entry(const std::string& section, const YamlNode& name, const YamlNode& value) const {
    const std::string full = section.empty() ? name.text : section + "." + name.text;
    const Key* key = find_key(full);
    if (key == nullptr) unknown(section, name, full);
    set(*key, value);
    resolved.origins[full] = at_place(place, name);
  }

  [[noreturn]] void unknown(const std::string& section, const YamlNode& name, const std::string& full) const {
    std::vector<std::string> names, own;
    std::string elsewhere;
    for (const Key& key : schema()) {
      names.push_back(key.name);
      if (key.section() == section) own.push_back(key.leaf());
      if (key.leaf() == name.text) elsewhere = key.name;  // the right word in the wrong section
    }
    const std::string close = did_you_mean(name.text, own);
    std::string near = elsewhere;
    if (near.empty() && !close.empty()) near = section.empty() ? close : section + "." + close;
    if (near.empty()) near = did_you_mean(full, names);
    std::string allowed = own.empty() ? std::string() : "; allowed" + (section.empty() ? "" : " in " + section) + ": ";
    for (size_t i = 0; i < own.size(); ++i) allowed += (i > 0 ? ", " : "") + own[i];
    fail(name, "unknown key '" + full + "'" + allowed,
         near.empty() ? "`pacer config schema` lists every key" : "did you mean '" + near + "'?");
  }
};

bool is_section(const std::string& name) {
  return std::ranges::any_of(schema(), [&](const Key& key) { return key.section() == name; });
}

void read_file_tree(const YamlNode& root, const Reader& reader) {
  if (root.kind == YamlNode::Kind::null) return;  // an empty file: the required keys are missing, and that is said
  if (root.kind != YamlNode::Kind::map) {
    reader.fail(root, "a recipe is a mapping of sections, found " + describe(root), "start with a line like 'model:'");
  }
  for (size_t i = 0; i < root.keys.size(); ++i) {
    const YamlNode &name = root.keys[i], &value = root.items[i];
    if (!is_section(name.text) || name.text.empty()) {
      if (value.kind == YamlNode::Kind::map && find_key(name.text) == nullptr) {
        std::vector<std::string> sections;
        for (const Key& key : schema()) {
          if (sections.empty() || sections.back() != key.section()) sections.push_back(key.section());
        }
        const std::string near = did_you_mean(name.text, sections);
        reader.fail(name, "unknown section '" + name.text + "'; allowed: " + quoted_list(sections),
                    near.empty() ? "`pacer config schema` lists every key" : "did you mean '" + near + "'?");
      }
      reader.entry("", name, value);
      continue;
    }
    if (value.kind == YamlNode::Kind::null) continue;  // a section with every line commented out
    if (value.kind != YamlNode::Kind::map) {
      reader.fail(value, "section '" + name.text + "' is " + describe(value) + "; expected keys with values",
                  "write the keys below it, indented");
    }
    for (size_t j = 0; j < value.keys.size(); ++j) reader.entry(name.text, value.keys[j], value.items[j]);
  }
}

void apply_override(const std::string& text, ResolvedRecipe& resolved) {
  const std::string place = "override '" + text + "'";
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ErrorKind::usage, place + ": not of the form section.key=value",
                "for example optimizer.learning_rate=1e-3");
  }
  const Reader reader{resolved, place};
  YamlNode name;
  name.kind = YamlNode::Kind::scalar;
  name.line = name.column = 1;
  const std::string full = text.substr(0, equals);
  const size_t dot = full.find('.');
  name.text = dot == std::string::npos ? full : full.substr(dot + 1);
  // Parsed behind spaces in place of the key, so that columns count from the start of the override.
  YamlNode value = parse_yaml(std::string(equals + 1, ' ') + text.substr(equals + 1), place);
  if (value.line == 0) value.line = 1, value.column = static_cast<int>(equals) + 2;
  reader.entry(dot == std::string::npos ? "" : full.substr(0, dot), name, value);
  resolved.origins[full] = "override";
}

void check_required(const ResolvedRecipe& resolved, const std::string& place) {
  for (const Key& key : schema()) {
    if (!key.required || resolved.origins.at(key.name) != "default") continue;
    // A language model needs no rows, and no other model unless it starts from its weights.
    const Recipe& recipe = resolved.recipe;
    if (recipe.method == "causal_lm" && !(key.name == "model.target" && recipe.language_model.start == "weights")) {
      continue;
    }
    throw Error(ErrorKind::usage, place + ": '" + key.name + "' is missing", key.name + ": " + key.doc);
  }
}

}  // namespace

ResolvedRecipe parse_recipe(std::string_view yaml, const std::string& place,
                            const std::vector<std::string>& overrides) {
  ResolvedRecipe resolved;
  for (const Key& key : schema()) resolved.origins[key.name] = "default";
  read_file_tree(parse_yaml(yaml, place), Reader{resolved, place});
  for (const std::string& text : overrides) apply_override(text, resolved);
  check_required(resolved, place);
  check_recipe(resolved);
  return resolved;
}

ResolvedRecipe read_recipe(const std::filesystem::path& path, const std::vector<std::string>& overrides) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 17;
  std::string text;
  try {
    text = read_file(path, kMaxBytes);
  } catch (const Error& error) {  // the same words, but a recipe is a setting, not data
    throw Error(ErrorKind::usage, error.what(), error.hint());
  }
  return parse_recipe(text, path.string(), overrides);
}

ResolvedRecipe resolve(const Recipe& recipe, const std::string& origin) {
  ResolvedRecipe resolved;
  resolved.recipe = recipe;
  for (const Key& key : schema()) {
    resolved.origins[key.name] = value_json(key, recipe) == value_json(key, Recipe{}) ? "default" : origin;
  }
  check_required(resolved, origin);
  check_recipe(resolved);
  return resolved;
}

}  // namespace pacer::train
