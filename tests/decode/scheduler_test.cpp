#include "pacer/decode/scheduler.h"

#include <string>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer::decode {
namespace {

TEST(SchedulePrefixes, EqualsTheGoldenSchedules) {
  const nlohmann::json cases = test::golden_json("spec_sampling/scheduler.json");
  ASSERT_GE(cases.size(), 20u);
  for (const nlohmann::json& expected : cases) {
    SCOPED_TRACE(expected["table"].get<std::string>() + (expected["early_stop"].get<bool>() ? ", early stop" : ""));
    const auto confidence = expected["confidence"].get<std::vector<std::vector<double>>>();
    const auto table = expected["sps"].get<std::vector<double>>();
    const Schedule found = schedule_prefixes(confidence, table, expected["early_stop"].get<bool>());
    EXPECT_EQ(found.lengths, expected["lengths"].get<std::vector<int64_t>>());
    EXPECT_NEAR(found.throughput, expected["throughput"].get<double>(), 1e-9);
    const auto trace = expected["throughput_trace"].get<std::vector<double>>();
    ASSERT_EQ(found.trace.size(), trace.size());
    for (size_t i = 0; i < trace.size(); ++i) EXPECT_NEAR(found.trace[i], trace[i], 1e-9) << i;
  }
}

TEST(SchedulePrefixes, EndsWithTheTable) {
  const std::vector<std::vector<double>> confidence = {{0.9, 0.9, 0.9}};
  const std::vector<double> table = {0.0, 1.0, 1.0};  // nobody measured more than two rows
  EXPECT_EQ(schedule_prefixes(confidence, table).lengths, std::vector<int64_t>{1});
  EXPECT_THROW(schedule_prefixes(confidence, std::vector<double>{0.0}), Error);
}

}  // namespace
}  // namespace pacer::decode
