#include "pacer/parallel/gate.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "pacer/base/error.h"

#include "tests/distributed/ranks.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

// What `pacer launch -n 4 -- pacer gate --faults` does.
void expect_gate_with_faults(const RankSetup& setup) {
  const test::TemporaryFolder folder;
  const auto outcomes = outcomes_of_ranks(
      4,
      [&](World& world) {
        GateOptions options;
        options.folder = folder.path();
        options.faults = true;
        options.device = world.place();
        EXPECT_EQ(device::in_host_memory(options.device), setup.device.empty());
        const auto results = run_gate(world, options, [](const GateResult&) {});
        EXPECT_EQ(results.size(), covering_cases(4).size() + planted_faults().size());
        EXPECT_LE(covering_cases(4).size(), 12u);
        for (const GateResult& result : results) EXPECT_TRUE(result.passed) << result.name << ": " << result.failure;
      },
      std::chrono::seconds(60), std::chrono::minutes(9), setup);
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
}

TEST(Gate, EveryPairOfSettingsPassesAndEveryPlantedFaultIsFound) { expect_gate_with_faults({}); }

// The same model, the same cases, each rank on a device of its own; the hazard checker is on.
TEST(GateOnDevices, EveryPairOfSettingsPassesAndEveryPlantedFaultIsFound) {
  expect_gate_with_faults({.device = "simnpu"});
}

TEST(GateCases, PartsTogetherAreAllOfThem) {
  const std::vector<GateCase> all = all_cases(4);
  EXPECT_EQ(all.size(), 3u * (1 + 3) * 64)
      << "meshes, one micro-batch or four in three forms, six settings of two values";
  std::multiset<std::string> wanted, found;
  for (const GateCase& each : all) wanted.insert(each.name());
  for (int64_t part = 1; part <= 5; ++part) {
    const std::vector<GateCase> some = part_of(all, part, 5);
    EXPECT_NEAR(static_cast<double>(some.size()), static_cast<double>(all.size()) / 5, 1.0);
    for (const GateCase& each : some) found.insert(each.name());
  }
  EXPECT_EQ(found, wanted);
  EXPECT_THROW(part_of(all, 0, 4), Error);
  EXPECT_THROW(part_of(all, 5, 4), Error);
}

TEST(GateFull, EveryCombinationOfSettings) {
  const test::TemporaryFolder folder;
  const auto outcomes = outcomes_of_ranks(
      4,
      [&](World& world) {
        GateOptions options;
        options.folder = folder.path();
        options.full = true;
        for (const GateResult& result : run_gate(world, options, [](const GateResult&) {})) {
          EXPECT_TRUE(result.passed) << result.name << ": " << result.failure;
        }
      },
      std::chrono::minutes(10), std::chrono::hours(2));
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 0) << outcome.error;
}

}  // namespace
}  // namespace pacer::parallel
