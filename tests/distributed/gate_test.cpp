#include "pacer/parallel/gate.h"

#include <gtest/gtest.h>

#include "tests/distributed/ranks.h"
#include "tests/support/files.h"

namespace pacer::parallel {
namespace {

// What `pacer launch -n 4 -- pacer gate --faults` does, at once with its faults.
TEST(Gate, EveryPairOfSettingsPassesAndEveryPlantedFaultIsFound) {
  const test::TemporaryFolder folder;
  run_ranks(4, [&](World& world) {
    GateOptions options;
    options.folder = folder.path();
    options.faults = true;
    const auto results = run_gate(world, options, [](const GateResult&) {});
    EXPECT_EQ(results.size(), covering_cases(4).size() + planted_faults().size());
    for (const GateResult& result : results) EXPECT_TRUE(result.passed) << result.name << ": " << result.failure;
  });
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
