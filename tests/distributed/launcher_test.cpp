#include "pacer/parallel/launcher.h"

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;

LaunchOptions ranks(int64_t count) { return {.processes = count, .grace_s = 0.2, .kill_s = 2}; }

std::vector<std::string> shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

// The process is there and no zombie.
bool alive(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const size_t state = text.rfind(')') + 2;
  return state < text.size() && text[state] != 'Z';
}

// launch() makes threads, so it runs in a process of its own: the others of this program are forked.
int in_a_process(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Launcher, TellsEveryRankWhoItIs) {
  const test::TemporaryFolder folder;
  const std::string script =
      "printf '%s ' $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
      "$OMP_NUM_THREADS > " +
      folder.path().string() + "/$RANK; test $MASTER_PORT -gt 0";
  EXPECT_EQ(in_a_process([&] {
              ::unsetenv("OMP_NUM_THREADS");
              const LaunchResult result = launch(shell(script), ranks(3));
              EXPECT_EQ(result.exit_code, 0);
              EXPECT_EQ(result.failed_rank, -1);
            }),
            0);
  EXPECT_EQ(read_file(folder.path() / "0"), "0 0 3 3 127.0.0.1 1 ");
  EXPECT_EQ(read_file(folder.path() / "2"), "2 2 3 3 127.0.0.1 1 ");
}

TEST(Launcher, PathsAndArgumentsWithSpacesArriveAsTheyAre) {
  const test::TemporaryFolder outer;
  const fs::path folder = outer.path() / "a folder with spaces";
  fs::create_directory(folder);
  const fs::path program = folder / "the program.sh";
  write_file(program,
             "#!/bin/sh\nfor a in \"$@\"; do printf '%s\\n' \"$a\"; done > \"$(dirname \"$0\")/rank $RANK\"\n");
  fs::permissions(program, fs::perms::owner_all);
  EXPECT_EQ(in_a_process([&] {
              EXPECT_EQ(launch({program.string(), "one argument", "", "$RANK; 'x' * \"y\""}, ranks(2)).exit_code, 0);
            }),
            0);
  for (const char* name : {"rank 0", "rank 1"}) {
    EXPECT_EQ(read_file(folder / name), "one argument\n\n$RANK; 'x' * \"y\"\n");
  }
}

TEST(Launcher, TheFirstFailureDecidesTheCodeAndEndsTheOthers) {
  EXPECT_EQ(in_a_process([] {
              const double start = wall_seconds();
              const LaunchResult result =
                  launch(shell("if [ $RANK = 1 ]; then echo '{\"message\": {\"message\": \"no more paper\"}}' > "
                               "$TORCHELASTIC_ERROR_FILE; exit 5; fi; exec sleep 100"),
                         ranks(3));
              EXPECT_EQ(result.exit_code, 5);
              EXPECT_EQ(result.failed_rank, 1);
              EXPECT_EQ(result.message, "no more paper");
              EXPECT_LT(wall_seconds() - start, 60) << "the others sleep for 100 s unless they are ended";
            }),
            0);
}

TEST(Launcher, ARankThatIgnoresTheRequestIsKilled) {
  EXPECT_EQ(in_a_process([] {
              const LaunchResult result =
                  launch(shell("if [ $RANK = 0 ]; then kill -SEGV $$; fi; trap '' TERM; while :; do sleep 1; done"),
                         {.processes = 2, .grace_s = 0.1, .kill_s = 0.5});
              EXPECT_EQ(result.exit_code, 128 + SIGSEGV);
              EXPECT_EQ(result.failed_rank, 0);
            }),
            0);
}

TEST(Launcher, PassesOnTheSignalThatEndsIt) {
  const test::TemporaryFolder folder;
  const std::string script = "trap 'echo asked > " + folder.path().string() + "/$RANK; exit 0' TERM; touch " +
                             folder.path().string() + "/ready_$RANK; while :; do sleep 0.05; done";
  EXPECT_EQ(in_a_process([&] {
              const pid_t self = ::getpid();
              const pid_t sender = ::fork();
              if (sender == 0) {
                while (!fs::exists(folder.path() / "ready_0") || !fs::exists(folder.path() / "ready_1")) ::usleep(5000);
                ::kill(self, SIGTERM);
                ::_exit(0);
              }
              EXPECT_EQ(launch(shell(script), ranks(2)).signal, SIGTERM);
            }),
            0);
  EXPECT_EQ(read_file(folder.path() / "0"), "asked\n");
  EXPECT_EQ(read_file(folder.path() / "1"), "asked\n");
}

TEST(Launcher, KilledItTakesItsRanksWithIt) {
  const test::TemporaryFolder folder;
  const std::string script = "echo $$ > " + folder.path().string() + "/pid_$RANK.tmp; mv " + folder.path().string() +
                             "/pid_$RANK.tmp " + folder.path().string() + "/pid_$RANK; exec sleep 600";
  std::fflush(nullptr);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    launch(shell(script), ranks(3));
    ::_exit(0);
  }
  std::set<pid_t> children;
  for (const double start = wall_seconds(); children.size() < 3 && wall_seconds() - start < 60; ::usleep(5000)) {
    for (int rank = 0; rank < 3; ++rank) {
      const fs::path file = folder.path() / ("pid_" + std::to_string(rank));
      if (fs::exists(file)) children.insert(static_cast<pid_t>(std::stol(read_file(file))));
    }
  }
  ASSERT_EQ(children.size(), 3u);
  for (const pid_t child : children) EXPECT_TRUE(alive(child));
  ::kill(launcher, SIGKILL);
  ::waitpid(launcher, nullptr, 0);
  const auto any = [&] { return std::any_of(children.begin(), children.end(), alive); };
  for (const double start = wall_seconds(); any() && wall_seconds() - start < 5;) ::usleep(5000);
  EXPECT_FALSE(any()) << "5 seconds after the launcher was killed";
}

TEST(Launcher, RefusesWhatCannotBeStarted) {
  EXPECT_THROW(launch({"true"}, {.processes = 0}), Error);
  EXPECT_THROW(launch({}, {.processes = 1}), Error);
  EXPECT_EQ(in_a_process([] { EXPECT_EQ(launch({"/no/such/program"}, ranks(2)).exit_code, 127); }), 0);
}

}  // namespace
}  // namespace pacer::parallel
