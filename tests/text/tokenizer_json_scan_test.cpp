#include "pacer/text/tokenizer_json_scan.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/support/files.h"

namespace pacer::text {
namespace {

// Every event as a line; refuses nesting deeper than 100.
class Log final : public JsonEvents {
 public:
  std::vector<std::string> lines;
  bool null() override { return add("null"); }
  bool boolean(bool value) override { return add(value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return add("i" + std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return add("u" + std::to_string(value)); }
  bool number_real(double value) override { return add("d" + OrderedJson(value).dump()); }
  bool text(std::string_view value) override { return add("t" + std::string(value)); }
  bool key(std::string_view name) override { return add("k" + std::string(name)); }
  bool start_object() override { return ++depth_ <= 100 && add("{"); }
  bool end_object() override { return --depth_ >= 0 && add("}"); }
  bool start_array() override { return ++depth_ <= 100 && add("["); }
  bool end_array() override { return --depth_ >= 0 && add("]"); }

 private:
  bool add(std::string line) {
    lines.push_back(std::move(line));
    return true;
  }
  int depth_ = 0;
};

TEST(TokenizerJsonScan, BothScannersTellTheSame) {
  const std::string deep(60, '[');
  for (const std::string& json :
       {std::string(R"({"a":1,"b":[true,false,null],"":{"x":-5,"y":18446744073709551615,"z":0.25e-3}})"),
        std::string(R"(["\u0120hello","\ud83d\ude00 \"q\" \\ \/ \b\f\n\r\t","é中"])"), std::string("  [ ] \n"),
        std::string("{}"), std::string("[0,-0,-0.0,1e3,9007199254740993]"), std::string(R"({"a":1,"a":2})"),
        deep + std::string(60, ']')}) {
    Log fast, slow;
    ASSERT_TRUE(scan_json_fast(json, fast)) << json;
    ASSERT_TRUE(scan_json(json, slow)) << json;
    EXPECT_EQ(fast.lines, slow.lines) << json;
  }
}

TEST(TokenizerJsonScan, BothRefuseWhatIsNotJson) {
  for (const std::string& json :
       {std::string(""), std::string("{"), std::string("[1,]"), std::string("{\"a\" 1}"), std::string("[1] 2"),
        std::string("[01]"), std::string("[\"\xff\"]"), std::string("[\"a\nb\"]"), std::string("[nul]"),
        std::string("{\"a\":1,}"), std::string("[\"\\x\"]"), std::string("[\"open]"), std::string("[1}")}) {
    Log fast, slow;
    EXPECT_FALSE(scan_json_fast(json, fast)) << json;
    EXPECT_FALSE(scan_json(json, slow)) << json;
  }
}

TEST(TokenizerJsonScan, NestingEndsWhereTheEventsSay) {
  const std::string json = std::string(100000, '[') + std::string(100000, ']');
  Log fast, slow;
  EXPECT_FALSE(scan_json_fast(json, fast));
  EXPECT_FALSE(scan_json(json, slow));
  EXPECT_EQ(slow.lines.size(), 100u);
}

TEST(TokenizerJsonScan, IntegersBeyondSixtyFourBitsAreLeftToTheOther) {
  Log fast, slow;
  EXPECT_FALSE(scan_json_fast("[18446744073709551616]", fast));
  EXPECT_TRUE(scan_json("[18446744073709551616]", slow));
}

TEST(TokenizerJsonScan, RealTokenizerFile) {
  PACER_PACKAGE_OR_SKIP(folder, "qwen3-tokenizer");
  Log fast, slow;
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().filename() == "tokenizer.json") file = entry.path();
  }
  ASSERT_FALSE(file.empty()) << "no tokenizer.json in " << folder;
  const std::string json = read_file(file, uint64_t{64} << 20);
  ASSERT_TRUE(scan_json_fast(json, fast));
  ASSERT_TRUE(scan_json(json, slow));
  EXPECT_TRUE(fast.lines == slow.lines);
  EXPECT_GT(fast.lines.size(), 300000u);
}

}  // namespace
}  // namespace pacer::text
