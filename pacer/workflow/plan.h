// How the minutes of a quickstart are spent: a pure function of what was measured.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "pacer/base/json.h"
#include "pacer/workflow/training_prompts.h"

namespace pacer::workflow {

// What the user asked for. Zero: decided by the plan.
struct QuickstartWishes {
  double minutes = 12.0;                                   // wall time after the build
  int64_t steps = 0;                                       // fixed number of training steps instead of a time budget
  std::optional<TrainingPrompts> training = std::nullopt;  // unset: mixed when there are 20 minutes or more
  int64_t prompts = 0;                                     // training prompts
  int64_t evaluation_prompts = 0;                          // per kind
  bool full = false;  // every way of decoding and the comparison in f32 on every prompt of every kind
  TrainingPrompts training_prompts() const;
};

// Wall seconds on this machine with the chosen number of threads.
struct MeasuredSpeed {
  double plain_token_s = 0;  // one token of plain decoding in bf16
  double answer_s = 0;       // one answer of the training data, batched
  double answer_tokens = 0;  // its new tokens, in the mean; 0: not known
  double elapsed_s = 0;      // spent before the plan is made
  int lanes = 1;             // texts that are compared in f32 at once
};

struct QuickstartPlan {
  int64_t prompts = 0;             // training prompts to answer
  int64_t validation_prompts = 0;  // held back from them for the curve
  int64_t evaluation_prompts = 0;  // word problems, each also compared in f32
  int64_t other_prompts = 0;       // of each shipped kind
  int64_t exact_others = 0;        // of those, compared in f32
  bool others_whole = true;        // shipped kinds by every way of decoding; else plainly and paced
  int64_t steps = 0;               // 0: by time
  double generate_s = 0, train_s = 0, evaluate_s = 0;
  Json to_json() const;
  static QuickstartPlan from_json(const Json& json);  // what to_json wrote
  std::string text() const;                           // what will happen and how long it takes, one line per stage
};

// Most prompts of a shipped kind (chat, code, questions) that can be measured; of word problems kHeldOutProblems.
constexpr int64_t kShippedPrompts = 20;

// The evaluation gets what its fixed number of tokens needs, at most 40 % of the time (then fewer prompts): 40 word
// problems, and of the shipped kinds 20 each where the draft is trained on them too, else 8. Data take 40 % of the
// rest, training what remains. Throws Error{usage} when the minutes cannot hold the smallest useful run.
QuickstartPlan plan_quickstart(const QuickstartWishes& wishes, const MeasuredSpeed& speed);

// What went by before the training, in wall seconds, and how many answers of the plan the last call gave itself.
struct TimeSpent {
  double elapsed_s = 0;  // all stages so far
  double generate_s = 0;
  int64_t answered = 0;
};

// Wall seconds for the training when it begins: what is left of the minutes behind the evaluation. A machine that was
// quicker or slower at the answers than when the plan was made, up to twofold, is expected to stay so. At least 10 s;
// 0 where the plan counts steps.
double training_seconds(const QuickstartWishes& wishes, const QuickstartPlan& plan, const TimeSpent& spent);

}  // namespace pacer::workflow
