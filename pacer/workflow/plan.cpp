#include "pacer/workflow/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pacer/base/error.h"

namespace pacer::workflow {
namespace {

constexpr double kMostTokens = 64;  // of an answer that is evaluated
// Costs of a text in units of its plain run in bf16, prompts included.
constexpr double kEveryWay = 3.0;  // plain, with the draft, paced and by prompt lookup; where the draft is of use
constexpr double kEveryWayStrange = 4.5;  // where it is not: it costs half as much again as none
constexpr double kPlainAndPaced = 2.0;
constexpr double kExact = 1.7;         // in f32, twice the bytes per weight: with the draft; plain texts many at a time
constexpr double kExactStrange = 2.8;  // where the draft is of no use
constexpr double kMostEvaluation = 0.40;  // of the minutes
constexpr double kData = 0.40;            // of what the evaluation leaves; training has the rest
constexpr double kLaneGain = 0.8;         // of each lane: they share the memory
constexpr int64_t kEvaluationPrompts = 40, kOtherPrompts = 8, kExactOthers = 4;
constexpr int64_t kMostPrompts = 6000;  // a thousand fewer than there are
constexpr double kMixedMinutes = 20;    // fewer hold too few answers for several kinds
constexpr int64_t kFewestPrompts = 48;
constexpr double kLeastTraining = 10;  // seconds
constexpr double kSlack = 0.03;        // of the minutes: loading, saving, validation, report; and plans are estimates

double evaluation_seconds(const MeasuredSpeed& speed, const QuickstartPlan& plan, bool mixed) {
  const double lanes = std::max(1.0, kLaneGain * speed.lanes);
  const auto problems = static_cast<double>(plan.evaluation_prompts);
  const auto others = 3.0 * static_cast<double>(plan.other_prompts);  // chat, code, questions
  const auto exact_others = 3.0 * static_cast<double>(plan.exact_others);
  const double per_other = !plan.others_whole ? kPlainAndPaced : mixed ? kEveryWay : kEveryWayStrange;
  // Answers to problems are as long as those of the training; others may be longer.
  const double length = speed.answer_tokens > 0 ? std::min(speed.answer_tokens, kMostTokens) : kMostTokens;
  const double timed = kEveryWay * problems * length + per_other * others * kMostTokens;
  const double exact = kExact * problems * length + (mixed ? kExact : kExactStrange) * exact_others * kMostTokens;
  return speed.plain_token_s * (timed + exact / lanes);
}

// How many prompts of each kind, when word problems are `problems`.
void plan_evaluation(const QuickstartWishes& wishes, bool mixed, int64_t problems, QuickstartPlan& plan) {
  const bool whole = mixed || wishes.full;
  const int64_t asked = wishes.evaluation_prompts > 0 || whole ? kShippedPrompts : kOtherPrompts;
  plan.evaluation_prompts = std::min(problems, kHeldOutProblems);
  plan.other_prompts = std::min(plan.evaluation_prompts, asked);
  plan.exact_others = wishes.full ? plan.other_prompts : std::min(plan.other_prompts, kExactOthers);
  plan.others_whole = whole;
}

std::string duration(double seconds) {
  char text[32];
  if (seconds < 90) {
    std::snprintf(text, sizeof text, "%.0f s", seconds);
  } else {
    std::snprintf(text, sizeof text, "%.1f min", seconds / 60);
  }
  return text;
}

}  // namespace

TrainingPrompts QuickstartWishes::training_prompts() const {
  if (training) return *training;
  return minutes >= kMixedMinutes ? TrainingPrompts::mixed : TrainingPrompts::word_problems;
}

QuickstartPlan plan_quickstart(const QuickstartWishes& wishes, const MeasuredSpeed& speed) {
  QuickstartPlan plan;
  const double total = wishes.minutes * 60.0;

  const bool mixed = wishes.training_prompts() == TrainingPrompts::mixed;
  int64_t problems = wishes.evaluation_prompts > 0 ? wishes.evaluation_prompts : kEvaluationPrompts;
  plan_evaluation(wishes, mixed, problems, plan);
  plan.evaluate_s = evaluation_seconds(speed, plan, mixed);
  if (wishes.evaluation_prompts == 0 && !wishes.full) {
    while (problems > 3 && plan.evaluate_s > kMostEvaluation * total) {
      plan_evaluation(wishes, mixed, --problems, plan);
      plan.evaluate_s = evaluation_seconds(speed, plan, mixed);
    }
  }

  const double rest = total * (1.0 - kSlack) - speed.elapsed_s - plan.evaluate_s;
  plan.prompts = wishes.prompts;
  if (plan.prompts == 0) {
    const double affordable = std::floor(kData * std::max(rest, 0.0) / speed.answer_s);
    plan.prompts = std::min(kMostPrompts, static_cast<int64_t>(affordable));
    if (plan.prompts < kFewestPrompts && wishes.steps > 0) plan.prompts = kFewestPrompts;
  }
  plan.validation_prompts = std::clamp<int64_t>(plan.prompts / 16, 4, 32);
  plan.generate_s = speed.answer_s * static_cast<double>(plan.prompts + plan.validation_prompts);
  plan.steps = wishes.steps;
  plan.train_s = plan.steps > 0 ? 0.0 : rest - plan.generate_s;

  if (plan.prompts < kFewestPrompts && wishes.prompts == 0) {
    throw Error(ErrorKind::usage,
                "quickstart: " + duration(total) + " hold the answers to " + std::to_string(plan.prompts) +
                    " training prompts on this machine; at least " + std::to_string(kFewestPrompts) + " are needed",
                "give more time with --minutes, or fix the amounts with --prompts and --steps");
  }
  if (plan.steps == 0 && plan.train_s < kLeastTraining) {
    throw Error(ErrorKind::usage, "quickstart: no time is left for training within " + duration(total),
                "give more time with --minutes, or fix the number of steps with --steps");
  }
  return plan;
}

double training_seconds(const QuickstartWishes& wishes, const QuickstartPlan& plan, const TimeSpent& spent) {
  if (plan.steps > 0) return 0;
  double pace = 1;
  if (spent.answered > 0) {
    const double planned = plan.generate_s / static_cast<double>(plan.prompts + plan.validation_prompts);
    pace = std::clamp(spent.generate_s / static_cast<double>(spent.answered) / planned, 0.5, 2.0);
  }
  const double total = wishes.minutes * 60.0;
  return std::max(kLeastTraining, total * (1.0 - kSlack) - spent.elapsed_s - pace * plan.evaluate_s);
}

Json QuickstartPlan::to_json() const {
  return {{"prompts", prompts},
          {"validation_prompts", validation_prompts},
          {"evaluation_prompts", evaluation_prompts},
          {"other_prompts", other_prompts},
          {"exact_others", exact_others},
          {"others_whole", others_whole},
          {"steps", steps},
          {"generate_s", generate_s},
          {"train_s", train_s},
          {"evaluate_s", evaluate_s}};
}

QuickstartPlan QuickstartPlan::from_json(const Json& json) {
  QuickstartPlan plan;
  json.at("prompts").get_to(plan.prompts);
  json.at("validation_prompts").get_to(plan.validation_prompts);
  json.at("evaluation_prompts").get_to(plan.evaluation_prompts);
  json.at("other_prompts").get_to(plan.other_prompts);
  json.at("exact_others").get_to(plan.exact_others);
  json.at("others_whole").get_to(plan.others_whole);
  json.at("steps").get_to(plan.steps);
  json.at("generate_s").get_to(plan.generate_s);
  json.at("train_s").get_to(plan.train_s);
  json.at("evaluate_s").get_to(plan.evaluate_s);
  return plan;
}

std::string QuickstartPlan::text() const {
  std::string lines;
  lines += "  generate  " + std::to_string(prompts + validation_prompts) + " answers of the target, about " +
           duration(generate_s) + "\n";
  lines += steps > 0 ? "  train     " + std::to_string(steps) + " steps\n"
                     : "  train     a DSpark draft on them, about " + duration(train_s) + "\n";
  lines += "  evaluate  " + std::to_string(evaluation_prompts) + " word problems, also in f32, and " +
           std::to_string(other_prompts) + " prompts of three other kinds" +
           (others_whole ? "" : " (plain and paced)") + ", " + std::to_string(exact_others) +
           " of each also in f32, about " + duration(evaluate_s) + "\n";
  return lines;
}

}  // namespace pacer::workflow
