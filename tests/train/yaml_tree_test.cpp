#include "pacer/train/yaml_tree.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"

namespace pacer::train {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse_yaml(text, "r.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

TEST(YamlTree, RemembersPlacesAndQuotes) {
  const YamlNode root = parse_yaml("# note\nmodel:\n  target: \"1\"\n  sizes: [1, 2]\n  empty:\n", "r.yaml");
  ASSERT_EQ(root.keys.size(), 1u);
  const YamlNode& model = root.items[0];
  EXPECT_EQ(root.keys[0].line, 2);
  EXPECT_EQ(model.keys[0].line, 3);
  EXPECT_EQ(model.keys[0].column, 3);
  EXPECT_EQ(model.items[0].column, 11);
  EXPECT_TRUE(model.items[0].quoted);
  EXPECT_EQ(model.items[1].items[1].text, "2");
  EXPECT_FALSE(model.items[1].items[1].quoted);
  EXPECT_EQ(model.items[2].kind, YamlNode::Kind::null);
}

TEST(YamlTree, NamesThePlaceOfWhatItRefuses) {
  EXPECT_EQ(refusal("a: 1\nb: 2\na: 3\n"), "r.yaml:3:1: 'a' is given twice, first in line 1");
  EXPECT_EQ(refusal("a: &x 1\nb: *x\n"), "r.yaml:2:4: an alias (*name) is not allowed here");
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"), "r.yaml: more than one document");
  EXPECT_EQ(refusal("a: !!int 1\n").substr(0, 12), "r.yaml:1:4: ");
  EXPECT_EQ(refusal("a: [1, 2\nb: 3\n").substr(0, 7), "r.yaml:");
  EXPECT_EQ(refusal("? [a, b]\n: 1\n").substr(0, 12), "r.yaml:1:3: ");
  EXPECT_NE(refusal("a:\n\tb: 1\n"), "accepted");
}

TEST(YamlTree, IsBounded) {
  EXPECT_NE(refusal(std::string(17, '[') + std::string(17, ']')).find("nested deeper than 16"), std::string::npos);
  EXPECT_EQ(refusal(std::string(16, '[') + std::string(16, ']')), "accepted");
  std::string many = "[";
  for (int i = 0; i < 10'001; ++i) many += "1,";
  EXPECT_NE(refusal(many + "1]").find("more than 10000 values"), std::string::npos);
  EXPECT_NE(refusal(std::string((1 << 20) + 1, '#')).find("bytes, at most"), std::string::npos);
}

TEST(YamlTree, AnEmptyFileIsNothing) {
  EXPECT_EQ(parse_yaml("", "r.yaml").kind, YamlNode::Kind::null);
  EXPECT_EQ(parse_yaml("# only a comment\n", "r.yaml").kind, YamlNode::Kind::null);
}

}  // namespace
}  // namespace pacer::train
