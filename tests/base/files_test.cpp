#include "pacer/base/files.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// Writes beyond this many bytes of a file fail, as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    old_handler_ = std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_{};
  void (*old_handler_)(int);
};

// RFC 3720, appendix B.4, and the check value of the catalogue of CRC algorithms.
TEST(Crc32c, PublishedVectors) {
  std::vector<unsigned char> rising(32), falling(32);
  std::iota(rising.begin(), rising.end(), static_cast<unsigned char>(0));
  std::copy(rising.rbegin(), rising.rend(), falling.begin());
  const auto sum = [](const auto& values) { return crc32c(std::as_bytes(std::span(values))); };
  EXPECT_EQ(sum(std::vector<unsigned char>(32, 0x00)), 0x8A9136AAu);
  EXPECT_EQ(sum(std::vector<unsigned char>(32, 0xFF)), 0x62A8AB43u);
  EXPECT_EQ(sum(rising), 0x46DD794Eu);
  EXPECT_EQ(sum(falling), 0x113FDB5Cu);
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

RC_GTEST_PROP(Crc32c, ASumCanBeContinuedAnywhere, (const std::string& text)) {
  const size_t cut = *rc::gen::inRange<size_t>(0, text.size() + 1);
  const std::string_view whole = text;
  RC_ASSERT(crc32c(bytes_of(whole.substr(cut)), crc32c(bytes_of(whole.substr(0, cut)))) == crc32c(bytes_of(whole)));
}

TEST(WriteFile, ReplacesTheWholeContent) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "a file.json";
  write_file(path, "a long first content");
  write_file(path, "short");
  EXPECT_EQ(read_file(path), "short");
  EXPECT_EQ(entries(folder.path()), 1u) << "no temporary name stays";
}

TEST(WriteFile, AFailureKeepsTheOldContentAndLeavesNothingBehind) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "state";
  write_file(path, "old");
  EXPECT_THROW(write_file(path,
                          [&](int descriptor) {
                            write_all(descriptor, bytes_of("half of the new"), path);
                            throw std::runtime_error("the producer failed");
                          }),
               std::runtime_error);
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(WriteFile, AFullDiskIsAnErrorOfResourcesAndKeepsTheOldContent) {
  const test::TemporaryFolder folder;
  const fs::path path = folder.path() / "state";
  write_file(path, "old");
  {
    const FileSizeLimit limit(1000);
    try {
      write_file(path, std::string(5000, 'x'));
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resources);
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
      EXPECT_FALSE(error.hint().empty());
    }
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(WriteFile, AFolderThatDoesNotExistIsNamed) {
  const test::TemporaryFolder folder;
  try {
    write_file(folder.path() / "missing" / "file", "x");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resources);
    EXPECT_NE(std::string(error.what()).find("missing/file"), std::string::npos) << error.what();
  }
}

TEST(ReadFile, SaysWhatIsWrong) {
  const test::TemporaryFolder folder;
  EXPECT_THROW(read_file(folder.path() / "missing"), Error);
  EXPECT_THROW(read_file(folder.path()), Error) << "a folder";
  write_file(folder.path() / "large", std::string(100, 'x'));
  EXPECT_EQ(read_file(folder.path() / "large", 100).size(), 100u);
  EXPECT_THROW(read_file(folder.path() / "large", 99), Error);
}

TEST(FolderTransaction, AppearsWhole) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "deep" / "model";
  {
    FolderTransaction transaction(target);
    write_file(transaction.temporary() / "weights", "w");
    fs::create_directory(transaction.temporary() / "sub");
    write_file(transaction.temporary() / "sub" / "more", "m");
    EXPECT_FALSE(fs::exists(target));
    transaction.commit();
  }
  EXPECT_EQ(read_file(target / "weights"), "w");
  EXPECT_EQ(read_file(target / "sub" / "more"), "m");
  EXPECT_EQ(entries(target.parent_path()), 1u);
}

TEST(FolderTransaction, WhatIsNotCommittedIsRemoved) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model";
  {
    const FolderTransaction transaction(target);
    write_file(transaction.temporary() / "weights", "w");
  }
  EXPECT_EQ(entries(folder.path()), 0u);
}

TEST(FolderTransaction, ReplacesOnlyWhenAsked) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model";
  fs::create_directory(target);
  write_file(target / "old", "o");
  EXPECT_THROW(FolderTransaction{target}, Error);
  FolderTransaction transaction(target, /*replace=*/true);
  write_file(transaction.temporary() / "new", "n");
  EXPECT_TRUE(fs::exists(target / "old"));
  transaction.commit();
  EXPECT_FALSE(fs::exists(target / "old"));
  EXPECT_EQ(read_file(target / "new"), "n");
  EXPECT_EQ(entries(folder.path()), 1u);
}

TEST(WriteFile, AFolderOfThatNameIsAnErrorOfResources) {
  const test::TemporaryFolder folder;
  fs::create_directories(folder.path() / "name" / "inner");
  try {
    write_file(folder.path() / "name", "x");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::resources) << error.what();
  }
  EXPECT_EQ(entries(folder.path()), 1u) << "no temporary name stays";
}

// The number of a process that has ended.
std::string dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return std::to_string(child);
}

TEST(FolderTransaction, RemovesWhatDeadWritersLeftAndNothingElse) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model";
  const std::string dead = dead_process(), alive = std::to_string(::getppid());
  for (const std::string& name :
       {"model.tmp-" + dead, "model.tmp-" + alive, std::string("model.tmp-notes"), "model2.tmp-" + dead}) {
    fs::create_directory(folder.path() / name);
  }
  write_file(folder.path() / ("model.old-" + dead), "a file is not ours");
  FolderTransaction(target).commit();
  EXPECT_FALSE(fs::exists(folder.path() / ("model.tmp-" + dead)));
  EXPECT_EQ(entries(folder.path()), 5u);
}

TEST(FolderTransaction, AnOldFolderThatIsTheOnlyWholeOneComesBack) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model", old = folder.path() / ("model.old-" + dead_process());
  fs::create_directory(old);
  write_file(old / "weights", "w");
  EXPECT_THROW(FolderTransaction{target}, Error) << "it exists again";
  EXPECT_EQ(read_file(target / "weights"), "w");
  FolderTransaction(target, /*replace=*/true).commit();
  EXPECT_FALSE(fs::exists(target / "weights"));
}

TEST(FolderTransaction, AReaderAlwaysSeesAWholeFolder) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model";
  fs::create_directory(target);
  write_file(target / "weights", "w");
  const pid_t reader = ::fork();
  ASSERT_GE(reader, 0);
  if (reader == 0) {  // ends at the first gap, or is killed
    while (::access((target / "weights").c_str(), R_OK) == 0) {
    }
    ::_exit(1);
  }
  for (int i = 0; i < 50; ++i) {
    FolderTransaction transaction(target, /*replace=*/true);
    write_file(transaction.temporary() / "weights", "v");
    transaction.commit();
  }
  ::kill(reader, SIGKILL);
  int status = 0;
  ::waitpid(reader, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the folder was missing for a moment";
}

TEST(FolderTransaction, AKilledWriterLeavesNoFolderOfThatName) {
  const test::TemporaryFolder folder;
  const fs::path target = folder.path() / "model";
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const FolderTransaction transaction(target);
    write_file(transaction.temporary() / "weights", "w");
    ::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_FALSE(fs::exists(target));
  FolderTransaction(target).commit();  // what the dead one left is in nobody's way
  EXPECT_TRUE(fs::exists(target));
}

TEST(MappedFile, ShowsTheBytes) {
  const test::TemporaryFolder folder;
  write_file(folder.path() / "data", "abc");
  const auto mapped = MappedFile::open(folder.path() / "data");
  ASSERT_EQ(mapped->bytes().size(), 3u);
  EXPECT_EQ(std::memcmp(mapped->bytes().data(), "abc", 3), 0);
  write_file(folder.path() / "empty", "");
  EXPECT_THROW(MappedFile::open(folder.path() / "empty"), Error);
  EXPECT_THROW(MappedFile::open(folder.path() / "missing"), Error);
}

TEST(Inside, ANameMustNotLeadOutOfItsFolder) {
  EXPECT_EQ(inside("/m", "a/b.safetensors"), fs::path("/m/a/b.safetensors"));
  EXPECT_EQ(inside("/m", "a/../b"), fs::path("/m/b"));
  for (const char* name : {"", "..", "../x", "a/../../x", "/etc/passwd", "./../x"}) {
    EXPECT_THROW(inside("/m", name), Error) << "'" << name << "'";
  }
}

TEST(Inside, ANameThatNoFileCanHaveIsRefused) {
  const std::string longest(255, 'a');
  EXPECT_EQ(inside("/m", longest + "/b"), fs::path("/m") / longest / "b");
  std::string deep = "b";
  while (deep.size() < 4096) deep = "folder/" + deep;
  for (const std::string& name : {longest + "a", "b/" + longest + "a", deep, std::string("model\0.safetensors", 18)}) {
    try {
      inside("/m", name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::format);
      EXPECT_LT(std::string(error.what()).size(), 300u);
    }
  }
}

RC_GTEST_PROP(Inside, TheResultLiesInTheFolderOrThereIsAnError, ()) {
  const auto parts = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("..", ".", "a", "b", "", "...", "a..", " "));
  std::string name;
  for (const std::string& part : parts) name += (name.empty() ? "" : "/") + part;
  try {
    const fs::path result = inside("/top/folder", name).lexically_normal();
    RC_ASSERT(result.string().starts_with("/top/folder"));
    RC_ASSERT(result == "/top/folder" || result.string()[11] == '/');
  } catch (const Error& error) {
    RC_ASSERT(error.kind() == ErrorKind::format);
  }
}

}  // namespace
}  // namespace pacer
