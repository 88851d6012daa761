#include "tests/distributed/ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;

// As a launcher would have it.
std::optional<device::Runtime> open_device(const RankSetup& setup, const LaunchEnvironment& environment) {
  if (setup.device.empty()) return std::nullopt;
  const auto set = [](const char* name, int64_t value) { ::setenv(name, std::to_string(value).c_str(), 1); };
  set("SIMNPU_DEVICE_COUNT", setup.devices > 0 ? setup.devices : environment.local_world);
  set("LOCAL_RANK", environment.local_rank);
  set("LOCAL_WORLD_SIZE", environment.local_world);
  return device::Runtime::open(setup.device);
}

// Never returns: the child must not go on with the other tests.
[[noreturn]] void be_rank(int64_t rank, int64_t count, const fs::path& folder, std::chrono::milliseconds timeout,
                          const std::function<void(World&)>& body, const RankSetup& setup) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  ::setenv("GLOO_SOCKET_IFNAME", "lo", 1);
  if (!setup.output.empty()) {
    ::dup2(::open((setup.output + std::to_string(rank)).c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
  }
  int code = 0;
  // The child has the results of its parent's test so far; a failure of another start is none of this one.
  const auto failures = [] {
    return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
  };
  const int before = failures();
  const auto failed = [&](const std::string& message, const std::string& hint) {
    write_file(folder / ("error_" + std::to_string(rank)), message);
    write_file(folder / ("hint_" + std::to_string(rank)), hint);
    code = 2;
  };
  try {
    LaunchEnvironment environment{.rank = rank, .world = count, .local_rank = rank, .local_world = count};
    environment.store_file = (folder / "store").string();
    if (setup.environment) setup.environment(environment);
    World world(environment, {.timeout = timeout,
                              .make_backend = {},
                              .runtime = open_device(setup, environment),
                              .through_host = setup.through_host,
                              .stall = setup.stall});
    body(world);
  } catch (const Error& failure) {
    failed(failure.what(), failure.hint());
  } catch (const std::exception& failure) {
    failed(failure.what(), "");
  }
  if (code == 0 && failures() > before) code = 1;
  std::fflush(nullptr);
  ::_exit(code);
}

}  // namespace

std::vector<RankOutcome> outcomes_of_ranks(int64_t count, const std::function<void(World&)>& body,
                                           std::chrono::milliseconds timeout, std::chrono::seconds limit,
                                           const RankSetup& setup) {
  const test::TemporaryFolder folder;
  std::fflush(nullptr);
  std::vector<pid_t> ranks;
  const double start = wall_seconds();
  for (int64_t rank = 0; rank < count; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) be_rank(rank, count, folder.path(), timeout, body, setup);
    ranks.push_back(child);
  }
  std::vector<RankOutcome> outcomes(ranks.size());
  for (size_t open = ranks.size(); open > 0;) {
    for (size_t i = 0; i < ranks.size(); ++i) {
      int status = 0;
      if (ranks[i] == 0 || ::waitpid(ranks[i], &status, WNOHANG) != ranks[i]) continue;
      ranks[i] = 0;
      --open;
      outcomes[i].exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      outcomes[i].seconds = wall_seconds() - start;
      const auto said = [&](const char* what) {
        const fs::path file = folder.path() / (what + std::to_string(i));
        return fs::exists(file) ? read_file(file) : std::string();
      };
      outcomes[i].error = said("error_");
      outcomes[i].hint = said("hint_");
    }
    if (open > 0 && wall_seconds() - start > static_cast<double>(limit.count())) {
      for (const pid_t rank : ranks) {
        if (rank != 0) ::kill(rank, SIGKILL);
      }
    }
    ::usleep(2000);
  }
  return outcomes;
}

void run_ranks(int64_t count, const std::function<void(World&)>& body, const RankSetup& setup) {
  const auto outcomes = outcomes_of_ranks(count, body, std::chrono::seconds(60), std::chrono::seconds(120), setup);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].exit_code, 0) << "rank " << rank << ": " << outcomes[rank].error;
  }
}

}  // namespace pacer::parallel
