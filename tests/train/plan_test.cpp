#include "pacer/train/plan.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"

namespace pacer::train {
namespace {

RunPlan planned(const ScheduleSection& schedule, const DataSize& size) {
  RunPlan plan;
  plan_by_count(schedule, size, plan);
  return plan;
}

TEST(RunPlan, CountsStepsAndEpochs) {
  ScheduleSection steps;
  steps.steps = 50;
  EXPECT_EQ(planned(steps, {100, 8}).steps, 50);
  EXPECT_EQ(planned(steps, {100, 8}).end, 400);
  ScheduleSection epochs;
  epochs.epochs = 3;
  const RunPlan plan = planned(epochs, {100, 8});
  EXPECT_EQ(plan.end, 300);   // every row three times, no more
  EXPECT_EQ(plan.steps, 38);  // the last step has 4 rows
  EXPECT_EQ(plan.how, "3.0 epochs of 100 rows, 8 rows a step");
  epochs.epochs = 0.5;
  EXPECT_EQ(planned(epochs, {100, 8}).end, 50);
}

Recipe budget_recipe(double seconds) {
  Recipe recipe;
  recipe.schedule.time_budget_s = seconds;
  return recipe;
}

TEST(RunPlan, TurnsABudgetIntoTheStepsThatFit) {
  // 20 s spent, 2 s for the one validation, 1 s for the one checkpoint; features of all rows are there.
  const Measured measured{.spent = 20,
                          .step = 0.5,
                          .row = 1,
                          .validation = 2,
                          .checkpoint = 1,
                          .groups = 10,
                          .groups_done = 10,
                          .kept = true};
  RunPlan plan;
  plan_by_budget(budget_recipe(100), {80, 8}, measured, plan);
  EXPECT_EQ(plan.steps, (100 - 23) * 2);
  EXPECT_EQ(plan.end, plan.steps * 8);
  EXPECT_EQ(plan.measured["step_s"], 0.5);

  // Without room for features every row of every step is computed again.
  Measured poor = measured;
  poor.kept = false;
  plan_by_budget(budget_recipe(100), {80, 8}, poor, plan);
  EXPECT_EQ(plan.steps, static_cast<int64_t>(77 / 8.5));

  // Features still to be computed cost at most what all rows cost.
  Measured fresh = measured;
  fresh.groups_done = 0;
  plan_by_budget(budget_recipe(1000), {80, 8}, fresh, plan);
  EXPECT_EQ(plan.steps, (1000 - 23 - 80) * 2);

  Recipe often = budget_recipe(100);
  often.validation.every = 10;
  plan_by_budget(often, {80, 8}, measured, plan);
  EXPECT_EQ(plan.steps, 110);  // 77 s for N steps and N / 10 validations of 2 s
}

TEST(RunPlan, RefusesABudgetThatIsSpentBeforeTheFirstStep) {
  RunPlan plan;
  try {
    plan_by_budget(budget_recipe(10), {80, 8}, {.spent = 20, .step = 1, .groups = 10}, plan);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("schedule.time_budget_s is 10"), std::string::npos);
  }
}

TEST(RunPlan, WarmupIsAShareOrACount) {
  Recipe recipe;
  RunPlan plan;
  plan.steps = 200;
  recipe.schedule.warmup_ratio = 0.04;
  make_schedule(recipe, plan);
  EXPECT_EQ(plan.warmup_steps, 8);
  recipe.schedule.warmup_steps = 20;
  EXPECT_DOUBLE_EQ(make_schedule(recipe, plan).at(20), recipe.optimizer.learning_rate);
  recipe.schedule.warmup_steps = 200;
  EXPECT_THROW(make_schedule(recipe, plan), Error);
}

RunPlan example() {
  RunPlan plan;
  plan.steps = 12;
  plan.warmup_steps = 2;
  plan.end = 96;
  plan.how = "12 steps";
  plan.threads = 2;
  plan.rows_together = 8;
  plan.kernels = {{"torch", "x"}};
  plan.recipe = fixed_values(Recipe{});
  plan.train_rows = "aa";
  plan.target = "bb";
  return plan;
}

TEST(RunPlan, ReadsBackWhatItWrites) {
  const RunPlan plan = example();
  const RunPlan again = RunPlan::from_json(Json::parse(plan.to_json().dump()), "plan.json");
  EXPECT_EQ(again.to_json(), plan.to_json());
  Json broken = plan.to_json();
  broken["steps"] = "many";
  EXPECT_THROW(RunPlan::from_json(broken, "plan.json"), Error);
  broken = plan.to_json();
  broken.erase("threads");
  try {
    RunPlan::from_json(broken, "plan.json");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "plan.json: 'threads' is missing");
  }
  EXPECT_THROW(RunPlan::from_json(Json{{"schema", "pacer-plan"}, {"version", 99}}, "plan.json"), Error);
}

std::string refusal(const RunPlan& now) {
  try {
    check_continuation(example(), now, "runs/a");
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(RunPlan, AContinuationMustBeOfTheSameRecipeRowsAndTarget) {
  EXPECT_EQ(refusal(example()), "accepted");
  Recipe other;
  other.optimizer.learning_rate = 0.5;
  other.seed = 9;
  RunPlan now = example();
  now.recipe = fixed_values(other);
  EXPECT_EQ(refusal(now),
            "runs/a: the run began with another recipe: optimizer.learning_rate was 0.0006, is 0.5; seed was 1, is 9");
  Recipe harmless;
  harmless.checkpoint.every = 7;
  harmless.logging.tensorboard = false;
  now.recipe = fixed_values(harmless);
  EXPECT_EQ(refusal(now), "accepted");
  now = example();
  now.train_rows = "ab";
  EXPECT_NE(refusal(now).find("the training rows changed"), std::string::npos);
  now = example();
  now.target = "cc";
  EXPECT_NE(refusal(now).find("the target changed"), std::string::npos);
}

TEST(RunPlan, OtherKernelsAreAWarning) {
  std::string heard;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) heard += line;
  });
  RunPlan now = example();
  now.kernels = {{"torch", "y"}};
  EXPECT_EQ(refusal(now), "accepted");
  set_log_sink({});
  EXPECT_NE(heard.find("not the same bits"), std::string::npos);
}

}  // namespace
}  // namespace pacer::train
