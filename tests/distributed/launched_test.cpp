// Ranks that a launcher starts: Pacer's own, and torchrun where Python's torch runs.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>

#include <gmock/gmock.h>

#include "pacer/base/files.h"
#include "pacer/parallel/launcher.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

using ::testing::HasSubstr;

const std::string kRank = PACER_RANK_PROGRAM;

TEST(LaunchedRanks, MeetInTheStoreOfTheLauncher) {
  const test::TemporaryFolder folder;
  const pid_t child = ::fork();  // launch() makes threads, and this process is forked by other tests
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const LaunchResult fine = launch({kRank, folder.path().string()}, {.processes = 3});
    EXPECT_EQ(fine.exit_code, 0);
    const LaunchResult failed = launch({kRank, folder.path().string(), "2"}, {.processes = 3});
    EXPECT_EQ(failed.exit_code, 7);
    EXPECT_EQ(failed.failed_rank, 2);
    EXPECT_EQ(failed.message, "rank 2 is out of paper");
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  for (const char* rank : {"0", "1", "2"}) EXPECT_EQ(read_file(folder.path() / rank), "7");
}

// Output of a command and how it ended.
std::pair<int, std::string> shell(const std::string& command) {
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  std::string text;
  char buffer[4096];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, got);
  return {::pclose(pipe), text};
}

TEST(LaunchedRanks, RunUnderTorchrun) {
  const std::string python = std::string("PYTHONPATH='") + PACER_TORCH_PYTHON + "' timeout 120 python3 ";
  if (shell(python + "-c 'import torch.distributed.run'").first != 0) {
    GTEST_SKIP() << "Python's torch with its dependencies is not here";
  }
  const test::TemporaryFolder folder;
  const std::string torchrun = "GLOO_SOCKET_IFNAME=lo " + python +
                               "-m torch.distributed.run --standalone --no-python --nproc-per-node 2 '" + kRank +
                               "' '" + folder.path().string() + "'";
  const auto [fine, output] = shell(torchrun);
  EXPECT_EQ(fine, 0) << output;
  EXPECT_EQ(read_file(folder.path() / "0"), "3");
  EXPECT_EQ(read_file(folder.path() / "1"), "3");
  const auto [failed, text] = shell(torchrun + " 1");
  EXPECT_NE(failed, 0);
  EXPECT_THAT(text, HasSubstr("rank 1 is out of paper")) << "from the error file";
}

}  // namespace
}  // namespace pacer::parallel
