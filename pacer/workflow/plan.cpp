#include "pacer/workflow/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "pacer/base/error.h"

namespace pacer::workflow {
namespace {

constexpr double kNewTokens = 64;  // per evaluated prompt
// Plain, speculative, paced and by prompt lookup, with their prompts, in units of the plain run: a draft that knows
// nothing of a kind costs half as much again as none.
constexpr double kBf16Runs = 4.3;
constexpr double kF32Runs = 6.0;          // plain and speculative at twice the bytes per weight
constexpr double kMostEvaluation = 0.44;  // of the minutes
constexpr double kLaneGain = 0.8;         // of each lane: they share the memory
constexpr int64_t kEvaluationPrompts = 20, kExactPrompts = 6;
constexpr int64_t kMostPrompts = 6000;  // a thousand fewer than there are
constexpr double kMixedMinutes = 20;    // fewer hold too few answers for several kinds
constexpr int64_t kFewestPrompts = 48;
constexpr double kSlack = 0.08;  // of the minutes: loading, saving, validation, report; and plans are estimates

double evaluation_seconds(const MeasuredSpeed& speed, int64_t prompts, int64_t exact) {
  const double lanes = std::max(1.0, kLaneGain * speed.lanes);
  // Word problems, and the three shipped kinds: chat, code, questions.
  const auto texts = [](int64_t per_kind) {
    return static_cast<double>(std::min(per_kind, kHeldOutProblems) + 3 * std::min(per_kind, kShippedPrompts));
  };
  return kNewTokens * speed.plain_token_s * (kBf16Runs * texts(prompts) + kF32Runs * texts(exact) / lanes);
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

  plan.evaluation_prompts = wishes.evaluation_prompts > 0 ? wishes.evaluation_prompts : kEvaluationPrompts;
  const auto exact = [&](int64_t prompts) { return wishes.full ? prompts : std::min(prompts, kExactPrompts); };
  if (wishes.evaluation_prompts == 0 && !wishes.full) {
    while (plan.evaluation_prompts > 3 &&
           evaluation_seconds(speed, plan.evaluation_prompts, exact(plan.evaluation_prompts)) >
               kMostEvaluation * total) {
      --plan.evaluation_prompts;
    }
  }
  plan.exact_prompts = exact(plan.evaluation_prompts);
  plan.evaluate_s = evaluation_seconds(speed, plan.evaluation_prompts, plan.exact_prompts);

  const double rest = total * (1.0 - kSlack) - speed.elapsed_s - plan.evaluate_s;
  plan.prompts = wishes.prompts;
  if (plan.prompts == 0) {
    const double affordable = std::floor(0.3 * std::max(rest, 0.0) / speed.answer_s);
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
  if (plan.steps == 0 && plan.train_s < 10) {
    throw Error(ErrorKind::usage, "quickstart: no time is left for training within " + duration(total),
                "give more time with --minutes, or fix the number of steps with --steps");
  }
  return plan;
}

Json QuickstartPlan::to_json() const {
  return {{"prompts", prompts},
          {"validation_prompts", validation_prompts},
          {"evaluation_prompts", evaluation_prompts},
          {"exact_prompts", exact_prompts},
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
  json.at("exact_prompts").get_to(plan.exact_prompts);
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
  lines += "  evaluate  4 kinds x " + std::to_string(evaluation_prompts) + " prompts" +
           (evaluation_prompts > kShippedPrompts ? " (20 of the shipped kinds), " : ", ") +
           std::to_string(exact_prompts) + " of each also in f32, about " + duration(evaluate_s) + "\n";
  return lines;
}

}  // namespace pacer::workflow
