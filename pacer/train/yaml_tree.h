// A YAML file as a tree that remembers where everything stood. For files that strangers made: bounded, no aliases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace pacer::train {

struct YamlNode {
  enum class Kind { null, scalar, sequence, map };
  Kind kind = Kind::null;
  std::string text;             // of a scalar
  bool quoted = false;          // '1' and "1" are text, 1 is a number
  int line = 0, column = 0;     // of the value, 1-based
  std::vector<YamlNode> keys;   // of a map: scalars, no two alike
  std::vector<YamlNode> items;  // of a sequence, or the values of a map in the order of its keys
};

// One document. Throws Error{usage} with "place:line:column": not YAML, a key given twice or not a scalar, an alias,
// a second document, more than 1 MiB, 10,000 values or 16 levels.
YamlNode parse_yaml(std::string_view text, const std::string& place);

// "a mapping", "a list", "text", ... for messages.
std::string describe(const YamlNode& node);

}  // namespace pacer::train
