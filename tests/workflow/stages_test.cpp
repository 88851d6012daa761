#include "pacer/workflow/stages.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/files.h"

namespace pacer::workflow {
namespace {

TEST(StageBook, DoesAFinishedStageOnlyOnce) {
  const test::TemporaryFolder folder;
  int runs = 0;
  const auto body = [&] { return Json{{"count", ++runs}}; };
  EXPECT_EQ(StageBook(folder.path()).run("data", {{"prompts", 3}}, body)["count"], 1);
  // Another process, later: same inputs, nothing to do.
  EXPECT_EQ(StageBook(folder.path()).run("data", {{"prompts", 3}}, body)["count"], 1);
  EXPECT_EQ(runs, 1);
}

TEST(StageBook, DoesItAgainWhenItsInputsChanged) {
  const test::TemporaryFolder folder;
  StageBook book(folder.path());
  int runs = 0;
  const auto body = [&] { return Json{{"count", ++runs}}; };
  book.run("data", {{"prompts", 3}}, body);
  EXPECT_FALSE(book.finished("data", {{"prompts", 4}}));
  EXPECT_EQ(book.run("data", {{"prompts", 4}}, body)["count"], 2);
}

TEST(StageBook, AStageThatThrowsIsNotFinished) {
  const test::TemporaryFolder folder;
  StageBook book(folder.path());
  EXPECT_THROW(book.run("train", {}, []() -> Json { throw Error(ErrorKind::data, "no rows"); }), Error);
  EXPECT_FALSE(book.finished("train", {}));
}

TEST(StageBook, KeepsASecondOneOut) {
  const test::TemporaryFolder folder;
  const StageBook first(folder.path());
  try {
    const StageBook second(folder.path());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("another process works in it"), std::string::npos) << error.what();
  }
}

TEST(StageBook, RefusesARecordOfAnotherKind) {
  const test::TemporaryFolder folder;
  StageBook book(folder.path());
  std::ofstream(folder.path() / "stages" / "train.json") << "{\"schema\": \"other\"}";
  EXPECT_THROW(book.finished("train", {}), Error);
}

}  // namespace
}  // namespace pacer::workflow
