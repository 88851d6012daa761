#include "pacer/bench/works.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/bench/benches.h"
#include "tests/support/files.h"

namespace pacer::bench {
namespace {

template <typename Function>
std::string message_of(ErrorKind kind, Function function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(name_of(error.kind()), std::string(name_of(kind)));
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

Works written(const test::TemporaryFolder& folder, const std::string& text) {
  write_file(folder.path() / "works.json", text);
  return Works::read(folder.path() / "works.json");
}

TEST(Works, ACaseWinsOverTheDefaultsOfItsBench) {
  const test::TemporaryFolder folder;
  const Works works = written(folder, R"({"seed": 3, "models": {}, "benches": {"b": {"defaults": {"x": 1, "y": "d"},
      "cases": {"one": {"x": 5}, "two": {}}}}})");
  EXPECT_EQ(works.benches(), (std::vector<std::string>{"b"}));
  EXPECT_EQ(works.cases("b"), (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(works.work("b", "one").integer("x"), 5);
  EXPECT_EQ(works.work("b", "one").text("y"), "d");
  EXPECT_EQ(works.work("b", "two").integer("x"), 1);
  EXPECT_EQ(works.work("b", "two").seed(), 3u);
}

TEST(Works, AnUnknownNameIsAnsweredWithTheNamesThereAre) {
  const Works works = Works::read(Works::default_file());
  const std::string bench = message_of(ErrorKind::usage, [&] { works.work("decod", "x"); });
  for (const std::string& name : works.benches()) EXPECT_NE(bench.find("'" + name + "'"), std::string::npos) << bench;
  const std::string one = message_of(ErrorKind::usage, [&] { works.work("decode", "smol"); });
  for (const std::string& name : works.cases("decode")) EXPECT_NE(one.find("'" + name + "'"), std::string::npos) << one;
  const std::string later = message_of(ErrorKind::usage, [] { find_bench("eagle3_train"); });
  for (const Bench& known : all_benches()) EXPECT_NE(later.find("'" + known.name + "'"), std::string::npos) << later;
}

TEST(Works, AFieldThatIsMissingOrOfAnotherTypeIsNamedWithItsPlace) {
  const test::TemporaryFolder folder;
  const Works works = written(folder, R"({"seed": 3, "models": {"m": {"arch": "llama"}}, "benches": {"b": {"cases":
      {"one": {"x": "five", "n": -1, "model": "m", "other": "k"}}}}})");
  const Work work = works.work("b", "one");
  for (const auto& [field, found] : {std::pair{"x", "\"five\""}, {"n", "-1"}, {"absent", "'absent'"}}) {
    const std::string message = message_of(ErrorKind::format, [&, name = field] { work.integer(name); });
    EXPECT_NE(message.find("b.one"), std::string::npos) << message;
    EXPECT_NE(message.find(found), std::string::npos) << message;
  }
  EXPECT_NE(message_of(ErrorKind::format, [&] { work.model("model"); }).find("models.m"), std::string::npos);
  EXPECT_NE(message_of(ErrorKind::format, [&] { work.model("other"); }).find("allowed: 'm'"), std::string::npos);
}

TEST(Works, AFileOfAnotherKindIsRefused) {
  const test::TemporaryFolder folder;
  for (const char* text : {"[]", "{}", R"({"seed": 1, "models": {}, "benches": {"b": {}}})",
                           R"({"seed": 1, "models": {}, "benches": {"b": {"cases": {"c": 1}}}})"}) {
    message_of(ErrorKind::format, [&] { written(folder, text); });
  }
}

// The shipped file says what every bench of this version needs.
TEST(Works, TheShippedFileHasEveryBenchAndItsModels) {
  const Works works = Works::read(Works::default_file());
  for (const Bench& bench : all_benches()) {
    ASSERT_FALSE(works.cases(bench.name).empty()) << bench.name;
    for (const std::string& name : works.cases(bench.name)) {
      const Work work = works.work(bench.name, name);
      for (const char* field : {"model", "target"}) {
        if (!work.has(field)) continue;
        EXPECT_GT(work.model(field).vocab_size, 1000) << bench.name << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace pacer::bench
