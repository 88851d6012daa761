// Ranks that die, hang, throw or are sent away: everybody ends, soon, and says why.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>

#include "pacer/base/files.h"
#include "pacer/parallel/checkpoint.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_model.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{3};
constexpr double kSoon = 3 + 30;  // seconds

// Trains on 1 x 3 and calls `happens` on rank 1 inside of the second step.
std::function<void(World&)> training(const std::function<void()>& happens,
                                     const std::function<void(World&)>& ready = {}) {
  return [happens, ready](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(),
                  small_options({1, world.size()}, 1, true));
    for (int64_t step = 0; step < 4; ++step) {
      if (step == 1 && ready) ready(world);
      if (step == 1 && world.rank() == 1) happens();
      model.micro_batch(engine, step, world.rank());
      engine.step({.muon = 0.02, .adamw = 0.01});
    }
  };
}

[[noreturn]] void sleep_for_ever() {
  for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

TEST(RankFailure, ADeadRankEndsTheOthers) {
  const auto outcomes = outcomes_of_ranks(3, training([] { ::raise(SIGKILL); }), kTimeout);
  EXPECT_EQ(outcomes[1].exit_code, 128 + SIGKILL);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].exit_code, 2);
    EXPECT_LT(outcomes[rank].seconds, kSoon);
    EXPECT_THAT(outcomes[rank].error, HasSubstr("rank 1"));
  }
}

TEST(RankFailure, AHangingRankIsNamedAndEndsItself) {
  const auto outcomes = outcomes_of_ranks(3,
                                          [](World& world) {
                                            const SmallModel model(SmallModelOptions{});
                                            Engine engine(world, model.parameters(), model.segments(), model.calls(),
                                                          small_options({1, 3}, 1, true));
                                            model.micro_batch(engine, 0, world.rank());
                                            engine.step({.muon = 0.02, .adamw = 0.01});
                                            const at::Tensor h = engine.run(0, {small_batch(1, world.rank())})[0];
                                            if (world.rank() == 1) sleep_for_ever();  // in its forward
                                            const at::Tensor y = engine.run(1, {h, small_batch(1, world.rank())})[0];
                                            engine.backward(engine.run(2, {y})[0], 3);
                                          },
                                          kTimeout, std::chrono::seconds(120), {.stall = std::chrono::seconds(5)});
  EXPECT_EQ(outcomes[1].exit_code, 6) << "ended by its own watchdog";
  for (const RankOutcome& outcome : outcomes) EXPECT_LT(outcome.seconds, kSoon);
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(outcomes[rank].exit_code, 2);
    EXPECT_THAT(outcomes[rank].error, HasSubstr("rank 1 is behind: step 1, collective "));
  }
}

TEST(RankFailure, AThrowingRankEndsTheOthers) {
  const auto outcomes = outcomes_of_ranks(3, training([] { throw std::runtime_error("the disk is full"); }), kTimeout);
  EXPECT_EQ(outcomes[1].error, "the disk is full");
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_EQ(outcome.exit_code, 2);
    EXPECT_LT(outcome.seconds, kSoon);
  }
}

TEST(RankFailure, ARankThatIsSentAwaySaysWhoIsBehind) {
  const test::TemporaryFolder folder;
  const std::string output = (folder.path() / "stderr_").string();
  const auto outcomes = outcomes_of_ranks(2,
                                          training([] { std::this_thread::sleep_for(std::chrono::seconds(4)); },
                                                   [](World& world) {
                                                     if (world.rank() != 0) return;
                                                     std::thread([] {
                                                       std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                                                       ::kill(::getpid(), SIGTERM);
                                                     }).detach();
                                                   }),
                                          std::chrono::seconds(30), std::chrono::seconds(120), {.output = output});
  EXPECT_EQ(outcomes[0].exit_code, 128 + SIGTERM);
  EXPECT_THAT(read_file(output + "0"), HasSubstr("rank 0 is asked to end: this rank is in step 1, collective "));
  EXPECT_THAT(read_file(output + "0"), HasSubstr("rank 1 is behind: step 1"));
}

TEST(RankFailure, WithoutTheStoreItsHostIsNamed) {
  const test::TemporaryFolder folder;
  const fs::path port_file = folder.path() / "port";
  const pid_t host = ::fork();
  if (host == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const StoreHost store;
    write_file(port_file, std::to_string(store.port()));
    sleep_for_ever();
  }
  for (int i = 0; i < 6000 && !fs::exists(port_file); ++i) ::usleep(5000);
  ASSERT_TRUE(fs::exists(port_file));
  const auto port = static_cast<uint16_t>(std::stoi(read_file(port_file)));
  RankSetup setup;
  setup.environment = [&](LaunchEnvironment& environment) {
    environment.store_file.clear();
    environment.master_address = "127.0.0.1";
    environment.master_port = port;
    environment.launcher_hosts_store = true;
  };
  const auto outcomes = outcomes_of_ranks(2,
                                          training([] { ::raise(SIGKILL); },
                                                   [&](World& world) {
                                                     if (world.rank() == 0)
                                                       ::kill(host, SIGKILL);  // of this test's own
                                                     world.all().barrier("test");
                                                   }),
                                          kTimeout, std::chrono::seconds(120), setup);
  ::waitpid(host, nullptr, 0);
  EXPECT_EQ(outcomes[0].exit_code, 2);
  EXPECT_THAT(outcomes[0].error, HasSubstr("the store's host is gone"));
}

TEST(RankFailure, TheRunGoesOnFromItsCheckpointWithFewerRanks) {
  const test::TemporaryFolder folder;
  const auto outcomes = outcomes_of_ranks(
      4,
      [&](World& world) {
        const SmallModel model(SmallModelOptions{});
        Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({2, 2}, 1, true));
        for (int64_t step = 0; step < 3; ++step) {
          if (step == 2 && world.rank() == 3) ::raise(SIGKILL);
          model.micro_batch(engine, step, world.rank());
          engine.step({.muon = 0.02, .adamw = 0.01});
          if (step == 1) save_checkpoint(engine, folder.path() / "step_2");
        }
      },
      kTimeout);
  for (const RankOutcome& outcome : outcomes) EXPECT_NE(outcome.exit_code, 0);
  run_ranks(2, [&](World& world) {
    const SmallModel model(SmallModelOptions{});
    Engine engine(world, model.parameters(), model.segments(), model.calls(), small_options({1, 2}, 2, true));
    load_checkpoint(engine, folder.path() / "step_2");
    for (const int64_t k : {0, 1}) model.micro_batch(engine, 2, 2 * world.rank() + k);
    engine.step({.muon = 0.02, .adamw = 0.01});
    const Trail reference = alone({}, 4, 3, small_options({1, 1}, 1, true));
    for (const auto& [name, tensor] : state_of(engine)) {
      EXPECT_TRUE(test::same_bits(tensor, reference.states[2].at(name))) << name;
    }
  });
}

}  // namespace
}  // namespace pacer::parallel
