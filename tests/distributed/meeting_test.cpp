// Entries of docs/known_failures.md about ranks that meet: late ones, dead ones, those of an earlier start.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <thread>

#include <gmock/gmock.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/parallel/gloo.h"
#include "pacer/parallel/meeting.h"
#include "tests/distributed/ranks.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr double kSoon = 30;  // seconds on a busy machine

// Serves a store until it is destroyed; in a process of its own, because a store has threads and this one is forked.
class StoreProcess {
 public:
  StoreProcess() {
    process_ = ::fork();
    if (process_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const StoreHost store;
      write_file(folder_.path() / "port", std::to_string(store.port()));
      for (;;) ::pause();
    }
    for (int i = 0; i < 6000 && !fs::exists(folder_.path() / "port"); ++i) ::usleep(5000);
    port_ = static_cast<uint16_t>(std::stoi(read_file(folder_.path() / "port")));
  }
  ~StoreProcess() {
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
  }
  StoreProcess(const StoreProcess&) = delete;
  StoreProcess& operator=(const StoreProcess&) = delete;

  RankSetup setup() const {
    RankSetup setup;
    setup.environment = [port = port_](LaunchEnvironment& environment) {
      environment.store_file.clear();
      environment.master_address = "127.0.0.1";
      environment.master_port = port;
      environment.launcher_hosts_store = true;
    };
    return setup;
  }

 private:
  test::TemporaryFolder folder_;
  pid_t process_ = 0;
  uint16_t port_ = 0;
};

TEST(MeetingReports, Report82WhatDeadRanksLeftInTheStoreIsIgnored) {
  const StoreProcess store;
  constexpr int kStarts = 5;
  for (int start = 0; start < kStarts; ++start) {
    const bool last = start + 1 == kStarts;
    const auto outcomes = outcomes_of_ranks(
        2,
        [&](World& world) {
          // The values of this start, under the keys that every start uses.
          world.require_same("start " + std::to_string(start) + "\n", "the start");
          if (world.rank() == 0) world.set("mark", std::to_string(start));
          EXPECT_EQ(world.get("mark"), std::to_string(start));
          if (!last && world.rank() == 1) ::raise(SIGKILL);
          world.all().barrier("test");
        },
        seconds(20), seconds(60), store.setup());
    SCOPED_TRACE(start);
    EXPECT_EQ(outcomes[0].exit_code, last ? 0 : 2) << outcomes[0].error;
    EXPECT_EQ(outcomes[1].exit_code, last ? 0 : 128 + SIGKILL) << outcomes[1].error;
    EXPECT_LT(outcomes[0].seconds, kSoon);
  }
}

// A rank that sends just when another one dies; the pipe stands for the connection, for which no test hits the moment.
TEST(MeetingReports, Report84ARankSurvivesAWriteToADeadOne) {
  RankSetup setup;
  setup.environment = [](LaunchEnvironment&) { std::signal(SIGPIPE, SIG_DFL); };  // as a shell starts programs
  run_ranks(
      2,
      [](World&) {
        int ends[2];
        ASSERT_EQ(::pipe(ends), 0);
        ::close(ends[0]);
        EXPECT_EQ(::write(ends[1], "x", 1), -1);
        EXPECT_EQ(errno, EPIPE);
        ::close(ends[1]);
      },
      setup);
}

TEST(MeetingReports, Report79ALateRankIsNamed) {
  RankSetup setup;
  setup.environment = [](LaunchEnvironment& environment) {
    if (environment.rank == 1) std::this_thread::sleep_for(seconds(3));  // loads, tokenises, ...
  };
  const auto outcomes = outcomes_of_ranks(3, [](World&) {}, seconds(1), seconds(60), setup);
  EXPECT_EQ(outcomes[0].exit_code, 2);
  EXPECT_THAT(outcomes[0].error, HasSubstr("rank 0 waited 1 s for rank 1"));
}

TEST(MeetingReports, Report84ARankThatDiesInItsPreparationEndsTheOthers) {
  RankSetup before;
  before.environment = [](LaunchEnvironment& environment) {
    if (environment.rank == 1) ::raise(SIGKILL);
  };
  for (const bool met : {false, true}) {
    const auto outcomes = outcomes_of_ranks(
        2,
        [&](World& world) {
          if (world.rank() == 1) ::raise(SIGKILL);
          world.require_same("plan\n", "the plan");
        },
        seconds(2), seconds(60), met ? RankSetup{} : before);
    EXPECT_EQ(outcomes[0].exit_code, 2);
    EXPECT_THAT(outcomes[0].error, HasSubstr("rank 1"));
    EXPECT_LT(outcomes[0].seconds, kSoon);
  }
}

TEST(MeetingReports, Report83AStoreThatNobodyServesIsNamedSoon) {
  run_ranks(1, [](World&) {
    // Port 9 of this machine: nothing listens there.
    LaunchEnvironment environment{.rank = 0, .world = 2, .local_rank = 0, .local_world = 2};
    environment.master_address = "127.0.0.1";
    environment.master_port = 9;
    environment.launcher_hosts_store = true;
    const double start = wall_seconds();
    try {
      const World world(environment, {.timeout = seconds(1)});
      FAIL() << "met nobody";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::communication);
      EXPECT_THAT(error.what(), HasSubstr("does not reach the store at 127.0.0.1:9"));
      EXPECT_THAT(error.hint(), HasSubstr("TORCHELASTIC_USE_AGENT_STORE"));
    }
    EXPECT_LT(wall_seconds() - start, kSoon);
    EXPECT_LE(patience_with_store(environment, std::chrono::minutes(10)), seconds(60));
    environment.launcher_hosts_store = false;
    EXPECT_EQ(patience_with_store(environment, std::chrono::minutes(10)), std::chrono::minutes(10));
  });
}

TEST(MeetingReports, Report81SeveralMachinesOnTheLoopbackInterfaceAreRefused) {
  EXPECT_TRUE(is_loopback("127.0.1.1"));
  EXPECT_TRUE(is_loopback("::1"));
  EXPECT_FALSE(is_loopback("10.127.0.1"));
  RankSetup setup;  // ranks of tests listen at the interface lo
  setup.environment = [](LaunchEnvironment& environment) { environment.local_world = 1; };
  const auto outcomes = outcomes_of_ranks(2, [](World&) {}, seconds(20), seconds(60), setup);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(outcomes[rank].exit_code, 2);
    EXPECT_THAT(outcomes[rank].error, HasSubstr("rank " + std::to_string(rank) + " would listen at 127.0.0.1"));
  }
  run_ranks(1, [](World&) {
    LaunchEnvironment environment{.rank = 0, .world = 2, .local_rank = 0, .local_world = 1};
    environment.master_address = "node0";
    try {
      const World world(environment, {});
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.hint(), HasSubstr("GLOO_SOCKET_IFNAME"));
    }
  });
}

}  // namespace
}  // namespace pacer::parallel
