#include "pacer/optim/schedule.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "tests/support/files.h"

namespace pacer::optim {
namespace {

TEST(Schedule, FollowsTheRecordedClosedForm) {
  const auto cases = test::golden_json("checkpoint_layouts/lr_schedules.json");
  ASSERT_FALSE(cases.empty());
  for (const auto& entry : cases) {
    const Schedule schedule{.peak = entry["base_lr"], .steps = entry["total_steps"], .warmup = entry["warmup_steps"]};
    const auto& expected = entry["closed_form"];
    ASSERT_EQ(static_cast<int64_t>(expected.size()), schedule.steps);
    for (int64_t step = 1; step <= schedule.steps; ++step) {
      const double value = expected[static_cast<size_t>(step - 1)];
      EXPECT_NEAR(schedule.at(step), value, 1e-12 * schedule.peak) << schedule.steps << " step " << step;
    }
  }
}

TEST(Schedule, ConstantFollowsTheRecordedOneAfterItsWarmup) {
  const auto cases = test::golden_json("checkpoint_layouts/lr_schedules.json");
  for (const auto& entry : cases) {
    const Schedule schedule{.peak = entry["base_lr"],
                            .steps = entry["total_steps"],
                            .warmup = entry["warmup_steps"],
                            .shape = ScheduleShape::constant};
    const auto& expected = entry["specforge_constant_as_run"];
    for (int64_t step = 1; step <= schedule.steps; ++step) {
      const double value = expected[static_cast<size_t>(step - 1)];
      EXPECT_NEAR(schedule.at(step), value, 1e-9 * schedule.peak) << schedule.steps << " step " << step;
    }
  }
}

TEST(Schedule, DecaysTowardsTheFloorAndNotBelow) {
  for (const ScheduleShape shape : {ScheduleShape::cosine, ScheduleShape::linear}) {
    const Schedule schedule{.peak = 2e-3, .steps = 400, .warmup = 20, .floor = 0.05, .shape = shape};
    EXPECT_DOUBLE_EQ(schedule.at(20), 2e-3);
    EXPECT_DOUBLE_EQ(schedule.at(21), 2e-3);
    for (int64_t step = 22; step <= 400; ++step) {
      EXPECT_LT(schedule.at(step), schedule.at(step - 1));
      EXPECT_GE(schedule.at(step), 0.05 * 2e-3);
    }
    EXPECT_LT(schedule.at(400), 0.055 * 2e-3);
    EXPECT_NEAR(schedule.at(20 + 1 + 190), 2e-3 * (0.05 + 0.95 * 0.5), 1e-15);  // half way
  }
}

TEST(Schedule, SaysWhatIsWrong) {
  const Schedule good{.peak = 1e-3, .steps = 10, .warmup = 2};
  EXPECT_NO_THROW(check_schedule(good));
  const auto wrong = [](Schedule schedule) {
    try {
      check_schedule(schedule);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(wrong({.peak = 1e-3, .steps = 10, .warmup = 10}),
            "learning-rate schedule: warm-up of 10 steps in a run of 10");
  EXPECT_EQ(wrong({.peak = 1e-3, .steps = 0}), "learning-rate schedule: 0 steps, at least 1");
  EXPECT_NE(wrong({.peak = 1e-3, .steps = 9, .floor = 1.5}), "accepted");
  EXPECT_NE(wrong({.peak = 0, .steps = 9}), "accepted");
  EXPECT_THROW(good.at(0), Error);
  EXPECT_THROW(good.at(11), Error);
  EXPECT_EQ(parse_shape("linear"), ScheduleShape::linear);
  EXPECT_THROW(parse_shape("cosin"), Error);
}

}  // namespace
}  // namespace pacer::optim
