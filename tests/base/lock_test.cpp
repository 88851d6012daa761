#include "pacer/base/lock.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer {
namespace {

namespace fs = std::filesystem;

std::string refusal(const fs::path& file) {
  try {
    const FileLock lock(file, "busy", "wait");
  } catch (const Error& error) {
    EXPECT_EQ(error.hint(), "wait");
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "free";
}

TEST(FileLock, KeepsASecondOneOutAndNamesTheFirst) {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  {
    const FileLock first(file, "busy", "wait");
    EXPECT_EQ(refusal(file), "busy (process " + std::to_string(::getpid()) + ")");
  }
  EXPECT_EQ(refusal(file), "free");
}

TEST(FileLock, EndsWithAProcessThatWasKilled) {
  const test::TemporaryFolder folder;
  const fs::path file = folder.path() / "lock";
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const FileLock lock(file, "busy", "wait");
    if (::write(ends[1], "x", 1) != 1) ::_exit(1);
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_EQ(refusal(file), "busy (process " + std::to_string(child) + ")");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_EQ(refusal(file), "free");
}

TEST(FileLock, AFolderThatDoesNotExistIsAnErrorOfResources) {
  try {
    const FileLock lock("/proc/nowhere/lock", "busy", "wait");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resources);
  }
}

TEST(RemoveLeftovers, TakesTheTemporaryFilesOfThisNameOnly) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.json", "a.json.tmp-12", "a.json.tmp-99", "b.json.tmp-12"}) {
    write_file(folder.path() / name, "x");
  }
  fs::create_directory(folder.path() / "a.json.tmp-13");
  remove_leftovers(folder.path() / "a.json");
  EXPECT_TRUE(fs::exists(folder.path() / "a.json"));
  EXPECT_TRUE(fs::exists(folder.path() / "b.json.tmp-12"));
  EXPECT_TRUE(fs::exists(folder.path() / "a.json.tmp-13"));
  EXPECT_FALSE(fs::exists(folder.path() / "a.json.tmp-12"));
  EXPECT_FALSE(fs::exists(folder.path() / "a.json.tmp-99"));
}

TEST(RemoveLeftovers, TakesAllTemporaryFilesOfAFolder) {
  const test::TemporaryFolder folder;
  const std::vector<std::string> stay = {"a.json", "notes.tmp-old", ".tmp-12", "b.tmp-", "c.tmp-1.txt"};
  for (const std::string& name : stay) write_file(folder.path() / name, "x");
  for (const char* name : {"a.json.tmp-12", "b.tmp-3"}) write_file(folder.path() / name, "x");
  fs::create_directory(folder.path() / "inner.tmp-5");
  remove_all_leftovers(folder.path());
  for (const std::string& name : stay) EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  EXPECT_TRUE(fs::exists(folder.path() / "inner.tmp-5"));
  EXPECT_FALSE(fs::exists(folder.path() / "a.json.tmp-12"));
  EXPECT_FALSE(fs::exists(folder.path() / "b.tmp-3"));
  remove_all_leftovers(folder.path() / "nowhere");
}

}  // namespace
}  // namespace pacer
