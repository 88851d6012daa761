#include "pacer/base/json.h"

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer {
namespace {

std::string message_of(const std::string& text) {
  try {
    parse_json(text, "config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::format);
    return error.what();
  }
  return "no error";
}

TEST(Json, AnErrorNamesLineAndColumn) {
  EXPECT_EQ(message_of("{\"a\": 1,\n \"b\": oops}"), "config.json:2:7: not valid JSON");
  EXPECT_EQ(message_of("[1, 2"), "config.json:1:6: not valid JSON") << "cut off: the place is the end";
  EXPECT_EQ(message_of(""), "config.json:1:1: not valid JSON");
}

TEST(Json, DepthIsBounded) {
  const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(128), "x"));
  EXPECT_NE(message_of(nested(130)).find("deeper than 128"), std::string::npos);
  EXPECT_NE(message_of(nested(1000000)).find("deeper than 128"), std::string::npos) << "no stack overflow either";
}

TEST(Json, BracketsInsideOfStringsDoNotCount) {
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("[\"\\\"" + brackets + "\"]", "x").at(0), "\"" + brackets);
}

TEST(Json, NumbersThatNoDoubleHoldsAreRefused) {
  EXPECT_NE(message_of("[1e999]").find("range of a double"), std::string::npos);
}

TEST(Json, OrderedJsonKeepsTheOrderOfTheFile) {
  EXPECT_EQ(parse_ordered_json(R"({"z": 1, "a": 2})", "x").dump(), R"({"z":1,"a":2})");
}

TEST(Json, MembersOfAnOrderedObjectAreBounded) {
  const auto object = [](size_t members) {
    std::string text = "{";
    for (size_t i = 0; i < members; ++i) text += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\":\"";
    return text + "}";
  };
  EXPECT_EQ(parse_ordered_json(object(4096), "x").size(), 4096u);
  EXPECT_THROW(parse_ordered_json(object(4097), "x"), Error);
  const std::string many = "[" + object(3000) + "," + object(3000) + "]";
  EXPECT_EQ(parse_ordered_json(many, "x").size(), 2u) << "counted object by object";
  EXPECT_EQ(parse_json(object(100'000), "x").size(), 100'000u) << "sorted objects are fast";
}

TEST(Json, FilesThatAreTooLargeAreNotRead) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "a.json", R"({"key": "value"})");
  EXPECT_EQ(read_json(folder.path() / "a.json").at("key"), "value");
  EXPECT_THROW(read_json(folder.path() / "a.json", 10), Error);
}

}  // namespace
}  // namespace pacer
