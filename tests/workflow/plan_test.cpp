#include "pacer/workflow/plan.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/workflow/training_prompts.h"

namespace pacer::workflow {
namespace {

// A machine as the one the recipe was made on: 10 ms a token, 0.2 s an answer, half a minute gone.
constexpr MeasuredSpeed kSpeed{.plain_token_s = 0.010, .answer_s = 0.2, .elapsed_s = 30};

TEST(QuickstartPlan, SpendsTheTimeThatItWasGiven) {
  for (const double minutes : {6.0, 12.0, 30.0}) {
    const QuickstartPlan plan = plan_quickstart({.minutes = minutes}, kSpeed);
    const double planned = kSpeed.elapsed_s + plan.generate_s + plan.train_s + plan.evaluate_s;
    EXPECT_LE(planned, 60 * minutes);
    EXPECT_GE(planned, 0.9 * 60 * minutes);
    EXPECT_GT(plan.train_s, plan.generate_s);
  }
}

TEST(QuickstartPlan, KeepsTheFullEvaluationInTwelveMinutes) {
  const QuickstartPlan plan = plan_quickstart({.minutes = 12}, kSpeed);
  EXPECT_EQ(plan.evaluation_prompts, 40);
  EXPECT_EQ(plan.other_prompts, 8);
  EXPECT_EQ(plan.exact_others, 4);
  EXPECT_FALSE(plan.others_whole) << "a draft of word problems is not measured unpaced on other kinds";
}

TEST(QuickstartPlan, TwentyMinutesHoldSeveralKinds) {
  EXPECT_EQ(QuickstartWishes{.minutes = 12}.training_prompts(), TrainingPrompts::word_problems);
  EXPECT_EQ(QuickstartWishes{.minutes = 30}.training_prompts(), TrainingPrompts::mixed);
  const QuickstartWishes narrow{.minutes = 30, .training = TrainingPrompts::word_problems};
  EXPECT_EQ(narrow.training_prompts(), TrainingPrompts::word_problems);
  EXPECT_GT(plan_quickstart(narrow, kSpeed).train_s, plan_quickstart({.minutes = 30}, kSpeed).train_s)
      << "fewer prompts of other kinds are measured";
}

// A draft that sees the same answers too often learns them by heart, so more time is also more answers.
TEST(QuickstartPlan, MoreTimeIsMoreAnswersUntilThePromptsEnd) {
  const auto plan = [](double minutes) { return plan_quickstart({.minutes = minutes}, kSpeed); };
  EXPECT_GT(plan(40).prompts, 1.8 * static_cast<double>(plan(20).prompts));
  const QuickstartPlan longest = plan(6000);
  EXPECT_GT(longest.prompts, plan(40).prompts);
  for (const TrainingPrompts kind : {TrainingPrompts::word_problems, TrainingPrompts::mixed}) {
    const std::string lines = training_prompt_lines(kind, 1);
    EXPECT_LE(longest.prompts + longest.validation_prompts, std::count(lines.begin(), lines.end(), '\n'));
  }
}

TEST(QuickstartPlan, MoreThanTheShippedPromptsAreHeldOutProblems) {
  const double twenty = plan_quickstart({.minutes = 30, .evaluation_prompts = 20}, kSpeed).evaluate_s;
  const double forty = plan_quickstart({.minutes = 30, .evaluation_prompts = 40}, kSpeed).evaluate_s;
  EXPECT_GT(forty, 1.1 * twenty);
  EXPECT_LT(forty, 1.4 * twenty);
}

TEST(QuickstartPlan, ShortAnswersTakeLessTimeToEvaluateAndGiveItToTheTraining) {
  MeasuredSpeed speed = kSpeed;
  const auto at_length = [&](double tokens) {
    speed.answer_tokens = tokens;
    return plan_quickstart({.minutes = 10}, speed);
  };
  EXPECT_LT(at_length(40).evaluate_s, 0.9 * at_length(64).evaluate_s);
  EXPECT_GT(at_length(40).train_s, at_length(64).train_s);
  EXPECT_EQ(at_length(0).evaluate_s, at_length(64).evaluate_s) << "not known: as long as they may be";
  EXPECT_EQ(at_length(90).evaluate_s, at_length(64).evaluate_s) << "longer ones are cut";
}

TEST(QuickstartPlan, EvaluatesLessWhenThereIsLittleTime) {
  const QuickstartPlan plan = plan_quickstart({.minutes = 3}, kSpeed);
  EXPECT_LT(plan.evaluation_prompts, 40);
  EXPECT_LE(plan.other_prompts, plan.evaluation_prompts);
  EXPECT_LE(plan.evaluate_s, 0.40 * 180);
}

TEST(QuickstartPlan, FullComparesEveryPromptInF32) {
  const QuickstartPlan plan = plan_quickstart({.minutes = 20, .full = true}, kSpeed);
  EXPECT_EQ(plan.evaluation_prompts, 40);
  EXPECT_EQ(plan.other_prompts, kShippedPrompts);
  EXPECT_EQ(plan.exact_others, kShippedPrompts);
  EXPECT_TRUE(plan.others_whole);
}

TEST(QuickstartPlan, MeasuresKindsThatTheDraftWasTrainedOnWhole) {
  const QuickstartPlan plan = plan_quickstart({.minutes = 30}, kSpeed);
  EXPECT_EQ(plan.other_prompts, kShippedPrompts);
  EXPECT_TRUE(plan.others_whole);
}

TEST(QuickstartPlan, IsReadAsItWasWritten) {
  const QuickstartPlan plan = plan_quickstart({.minutes = 8}, kSpeed);
  EXPECT_EQ(QuickstartPlan::from_json(plan.to_json()).to_json(), plan.to_json());
  EXPECT_EQ(QuickstartPlan::from_json(plan.to_json()).text(), plan.text());
}

TEST(QuickstartPlan, TakesFixedAmountsAsTheyAre) {
  const QuickstartPlan plan =
      plan_quickstart({.minutes = 1.5, .steps = 40, .prompts = 64, .evaluation_prompts = 3}, kSpeed);
  EXPECT_EQ(plan.steps, 40);
  EXPECT_EQ(plan.prompts, 64);
  EXPECT_EQ(plan.evaluation_prompts, 3);
  EXPECT_EQ(plan.other_prompts, 3);
  EXPECT_EQ(plan.exact_others, 3);
}

TEST(QuickstartPlan, TrainingGetsWhatIsLeftWhenItBegins) {
  const QuickstartWishes wishes{.minutes = 10};
  const QuickstartPlan plan = plan_quickstart(wishes, kSpeed);
  const auto answers = plan.prompts + plan.validation_prompts;
  const auto left = [&](double pace) {
    return training_seconds(wishes, plan,
                            {.elapsed_s = kSpeed.elapsed_s + pace * plan.generate_s,
                             .generate_s = pace * plan.generate_s,
                             .answered = answers});
  };
  EXPECT_NEAR(left(1), plan.train_s, 1e-6) << "as planned";
  EXPECT_NEAR(left(0.8), plan.train_s + 0.2 * (plan.generate_s + plan.evaluate_s), 1e-6) << "quicker";
  EXPECT_NEAR(left(1.2), plan.train_s - 0.2 * (plan.generate_s + plan.evaluate_s), 1e-6) << "slower";
  EXPECT_NEAR(left(0.1), plan.train_s + 0.9 * plan.generate_s + 0.5 * plan.evaluate_s, 1e-6) << "not for ever";
  EXPECT_EQ(left(5), 10) << "late, but the answers are there";
  // A call that found all answers does not know how quick the machine was with them.
  const TimeSpent found{.elapsed_s = kSpeed.elapsed_s + 1, .generate_s = 1, .answered = 0};
  EXPECT_NEAR(training_seconds(wishes, plan, found), plan.train_s + plan.generate_s - 1, 1e-6);
  const QuickstartWishes counted{.minutes = 10, .steps = 30};
  EXPECT_EQ(training_seconds(counted, plan_quickstart(counted, kSpeed), found), 0);
}

TEST(QuickstartPlan, SaysThatTheTimeIsTooShort) {
  try {
    plan_quickstart({.minutes = 0.5}, kSpeed);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(error.hint().find("--minutes"), std::string::npos);
  }
}

TEST(QuickstartPlan, LanesLeaveMoreTimeForTraining) {
  MeasuredSpeed two = kSpeed;
  two.lanes = 2;
  const QuickstartPlan one = plan_quickstart({}, kSpeed), side_by_side = plan_quickstart({}, two);
  EXPECT_LT(side_by_side.evaluate_s, one.evaluate_s);
  EXPECT_GT(side_by_side.train_s, one.train_s);
}

}  // namespace
}  // namespace pacer::workflow
