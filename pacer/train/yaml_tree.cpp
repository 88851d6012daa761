#include "pacer/train/yaml_tree.h"

#include <algorithm>
#include <sstream>

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "pacer/base/error.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::train {
namespace {

// The parser keeps a few hundred bytes for each bracket until the one that closes it.
constexpr size_t kMaxBytes = size_t{1} << 17;
constexpr size_t kMaxNodes = 10'000;
constexpr size_t kMaxDepth = 16;

[[noreturn]] void fail(const std::string& place, int line, int column, const std::string& what,
                       const std::string& hint) {
  throw Error(ErrorKind::usage, place + ":" + std::to_string(line) + ":" + std::to_string(column) + ": " + what, hint);
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& place) : place_(place) {}
  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { add(node(mark, YamlNode::Kind::null)); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(place_, mark.line + 1, mark.column + 1, "an alias (*name) is not allowed here",
         "write the value out: a recipe says every setting where it is used");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t, const std::string& value) override {
    YamlNode scalar = node(mark, YamlNode::Kind::scalar);
    if (text::find_invalid_utf8(value) != std::string_view::npos) {
      fail(place_, scalar.line, scalar.column, "the value is not UTF-8 text", "save the recipe as UTF-8");
    }
    scalar.text = value;
    scalar.quoted = tag == "!";  // what the parser says of '…', "…" and block text
    if (tag != "!" && tag != "?" && !tag.empty()) {
      fail(place_, scalar.line, scalar.column, "the tag " + tag + " is not allowed here", "write the plain value");
    }
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(node(mark, YamlNode::Kind::sequence));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open(node(mark, YamlNode::Kind::map));
  }
  void OnMapEnd() override { close(); }

 private:
  YamlNode node(const YAML::Mark& mark, YamlNode::Kind kind) {
    YamlNode made;
    made.kind = kind;
    made.line = mark.line + 1;
    made.column = mark.column + 1;
    if (++count_ > kMaxNodes) {
      fail(place_, made.line, made.column, "more than " + std::to_string(kMaxNodes) + " values",
           "this is not a recipe");
    }
    return made;
  }

  void open(YamlNode made) {
    if (stack_.size() >= kMaxDepth) {
      fail(place_, made.line, made.column, "nested deeper than " + std::to_string(kMaxDepth) + " levels",
           "this is not a recipe");
    }
    stack_.push_back(std::move(made));
  }

  void close() {
    YamlNode done = std::move(stack_.back());
    stack_.pop_back();
    add(std::move(done));
  }

  void add(YamlNode value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    YamlNode& parent = stack_.back();
    if (parent.kind == YamlNode::Kind::map && parent.keys.size() == parent.items.size()) {
      if (value.kind != YamlNode::Kind::scalar) {
        fail(place_, value.line, value.column, "a key must be a word, found " + describe(value), {});
      }
      for (const YamlNode& key : parent.keys) {
        if (key.text != value.text) continue;
        fail(place_, value.line, value.column,
             "'" + value.text + "' is given twice, first in line " + std::to_string(key.line), "keep one of them");
      }
      parent.keys.push_back(std::move(value));
    } else {
      parent.items.push_back(std::move(value));
    }
  }

  const std::string& place_;
  YamlNode root_;
  std::vector<YamlNode> stack_;
  size_t count_ = 0;
};

}  // namespace

YamlNode parse_yaml(std::string_view text, const std::string& place) {
  if (text.size() > kMaxBytes) {
    throw Error(ErrorKind::usage, place + ": " + std::to_string(text.size()) + " bytes, at most " +
                                      std::to_string(kMaxBytes) + " are read");
  }
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(place);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    TreeBuilder rest(place);
    if (parser.HandleNextDocument(rest)) {
      throw Error(ErrorKind::usage, place + ": more than one document", "a recipe has one; remove the line '---'");
    }
  } catch (const YAML::ParserException& error) {
    fail(place, error.mark.line + 1, error.mark.column + 1, "not valid YAML: " + error.msg,
         "check the indentation, and that every key is followed by ': '");
  }
  return builder.take();
}

std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::null:
      return "nothing";
    case YamlNode::Kind::sequence:
      return "a list";
    case YamlNode::Kind::map:
      return "a mapping";
    case YamlNode::Kind::scalar:
      break;
  }
  constexpr size_t kShown = 60;
  const std::string shown = node.text.size() > kShown ? node.text.substr(0, kShown) + "…" : node.text;
  return node.quoted ? "the text \"" + shown + "\"" : "'" + shown + "'";
}

}  // namespace pacer::train
