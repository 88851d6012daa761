#include "pacer/device/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "pacer/base/error.h"

namespace pacer::device {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The values that both vendors document or their runtimes were seen to give.
TEST(VisibleDevices, TheVendorsRules) {
  struct Case {
    std::optional<std::string> value;
    int devices;
    size_t first_valid, ascending;
  };
  const std::vector<Case> cases = {
      {"1,0", 8, 2, 0},         {"0,2,4,6,1,3", 8, 6, 0}, {"", 8, 0, 0},    {"a", 8, 0, 0},
      {"0,1,-1,2", 8, 2, 2},    {"0,99", 8, 1, 1},        {"0,0", 8, 0, 0}, {std::nullopt, 8, 8, 8},
      {"0,2,4,6,1,3", 4, 2, 2}, {"GPU-1", 8, 0, 0},       {"3", 8, 1, 1},   {"0,1,2,3,4,5,6,7,8", 8, 8, 8},
  };
  for (const Case& one : cases) {
    const std::string text = one.value.value_or("(unset)");
    EXPECT_EQ(visible_devices(VisibilityRule::first_valid, one.value, one.devices).size(), one.first_valid) << text;
    EXPECT_EQ(visible_devices(VisibilityRule::ascending, one.value, one.devices).size(), one.ascending) << text;
    EXPECT_EQ(visible_devices(VisibilityRule::none, one.value, one.devices).size(), static_cast<size_t>(one.devices));
  }
}

TEST(VisibleDevices, KeepTheirOrderAndNames) {
  EXPECT_THAT(visible_devices(VisibilityRule::first_valid, "3,1", 4), ElementsAre(3, 1));
  EXPECT_THAT(visible_devices(VisibilityRule::ascending, "1,3", 4), ElementsAre(1, 3));
  const std::vector<std::string> uuids = {"GPU-aa11", "GPU-bb22", "GPU-bb33"};
  EXPECT_THAT(visible_devices(VisibilityRule::first_valid, "GPU-bb2,GPU-aa", 3, uuids), ElementsAre(1, 0));
  EXPECT_THAT(visible_devices(VisibilityRule::first_valid, "GPU-aa,GPU-bb", 3, uuids), ElementsAre(0)) << "ambiguous";
}

// A runtime that reads the variable itself counts what it left from 0; ids of the machine mean nothing then.
TEST(VisibleDevices, AreCountedOnceOnly) {
  const Visibility own{VisibilityRule::ascending, "V", true}, ours{VisibilityRule::ascending, "V", false};
  EXPECT_THAT(torch_indices(own, "4,5", 2), ElementsAre(0, 1));
  EXPECT_THAT(torch_indices(ours, "4,5", 8), ElementsAre(4, 5));
  EXPECT_THAT(torch_indices(own, "5,4", 2), ElementsAre());
  EXPECT_THAT(torch_indices(own, std::nullopt, 2), ElementsAre(0, 1));
  EXPECT_THAT(torch_indices({VisibilityRule::first_valid, "V", true}, "GPU-1,GPU-2", 2), ElementsAre(0, 1));
}

std::string refusal(const LaunchRanks& ranks, int count,
                    const Visibility& visibility = {VisibilityRule::ascending, "VISIBLE", false, ""}) {
  try {
    local_device(ranks, count, "npu", visibility);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    return std::string(error.what()) + " / " + error.hint();
  }
  return "";
}

TEST(LocalDevice, IsTheLocalRankElseTheRankModuloTheCount) {
  EXPECT_EQ(local_device({}, 4, "npu", {}), 0);
  EXPECT_EQ(local_device({.local_rank = 3, .local_size = 4, .rank = 11}, 4, "npu", {}), 3);
  EXPECT_EQ(local_device({.local_rank = {}, .local_size = {}, .rank = 5}, 4, "npu", {}), 1);
}

TEST(LocalDevice, TooFewForTheRanksIsSaidBeforeTheyMeet) {
  EXPECT_THAT(refusal({.local_rank = 4, .local_size = {}, .rank = {}}, 4),
              testing::AllOf(HasSubstr("LOCAL_RANK is 4"), HasSubstr("4 visible npu devices"), HasSubstr("VISIBLE")));
  EXPECT_THAT(refusal({.local_rank = 0, .local_size = 8, .rank = 0}, 4),
              testing::AllOf(HasSubstr("8 ranks"), HasSubstr("at most 4 ranks")));
  EXPECT_THAT(refusal({.local_rank = 0, .local_size = 8, .rank = 0}, 4,
                      {VisibilityRule::ascending, "VISIBLE", false, "HOW_MANY"}),
              testing::AllOf(HasSubstr("set HOW_MANY to more"), testing::Not(HasSubstr("VISIBLE"))));
}

TEST(LocalDevice, RanksComeFromTheEnvironment) {
  ::setenv("LOCAL_RANK", "2", 1);
  ::setenv("RANK", "7", 1);
  const LaunchRanks ranks = LaunchRanks::from_environment();
  EXPECT_EQ(ranks.local_rank, 2);
  EXPECT_EQ(ranks.rank, 7);
  EXPECT_FALSE(ranks.local_size);
  ::setenv("RANK", "x", 1);
  EXPECT_THROW(LaunchRanks::from_environment(), Error);
  ::unsetenv("LOCAL_RANK");
  ::unsetenv("RANK");
}

}  // namespace
}  // namespace pacer::device
