// Plain and speculative decoding of the same prompts, in turn, and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pacer/decode/confidence.h"
#include "pacer/decode/loop.h"
#include "pacer/draft/proposer.h"
#include "pacer/eval/task.h"
#include "pacer/target/target.h"

namespace pacer::eval {

// One text by one way of decoding.
struct RunFigures {
  int64_t new_tokens = 0;
  int64_t prompt_known = 0;  // tokens of the prompt that the text before had computed
  decode::Finish finish = decode::Finish::length;
  decode::PhaseTimes times;
  decode::AcceptanceCounts counts;  // empty for plain decoding
};

// Where two greedy texts part.
struct Difference {
  int64_t position = 0;                  // of the first token that differs, from 0 behind the prompt
  int64_t plain = -1, speculative = -1;  // the tokens there; -1 where a text had ended
  double margin = 0.0;                   // plain logits there: the likeliest token's lead over the second
  double disagreement = 0.0;             // plain logits there: the plain token's lead over the other text's token
};

// A way of decoding against the plain one.
struct Comparison {
  RunFigures figures;
  std::optional<bool> identical;  // not defined when sampling: other draws, other text, same distribution
  std::optional<Difference> difference;
};

// One turn of one prompt.
struct TurnResult {
  std::string id;  // the prompt's
  int64_t turn = 0;
  int64_t prompt_tokens = 0;
  std::string text;  // of the plain run
  RunFigures plain;
  std::optional<Comparison> speculative;  // with a draft
  std::optional<Comparison> paced;   // the draft (or prompt lookup) under a pacing rule, as `pacer generate` decodes
  std::optional<Comparison> lookup;  // prompt lookup, the baseline without training
  decode::Calibration calibration;   // of the draft's confidence head, if it has one and nothing was cut
};

struct TaskResult {
  std::string name;
  std::vector<TurnResult> turns;
};

struct Progress {
  std::string task;
  int64_t done = 0, total = 0;     // prompts over all tasks; told again as it is while plain texts are written
  double acceptance_length = 0.0;  // of the task so far, 0 before the first
};

// Whether the draft is also, or only, measured under a pacing rule.
enum class PaceUse { off, on, only };

struct MeasureOptions {
  decode::SamplingOptions sampling;  // stop_ids empty: the model's own
  double confidence_threshold = 0.0;
  int64_t most_drafts = 0;  // of the draft's rounds, 0: all that it proposes; more than it was trained for is refused
  int64_t max_turns = 0;    // turns per prompt, 0: all
  bool lookup = true;
  int64_t lookup_tokens = 5;  // per proposal
  PaceUse pace = PaceUse::off;
  decode::PaceOptions pace_options;  // one session for all texts of a call
  // Plain texts are written many at a time before anything else, and have no seconds: for comparing texts. Their bits
  // are those of one by one (Target's promise), so a difference is found just as well.
  bool plain_in_batch = false;
  std::string system;  // for prompts without a system message of their own
  decode::Verifier verifier = decode::verify;
  std::function<void(const Progress&)> on_progress;
};

// Every turn is decoded plainly, with the draft (null: not at all), by prompt lookup and, if asked for, with a pacing
// rule, each with caches of its own, which remember the beginning that a prompt shares with the one before; which one
// comes first changes from turn to turn, so that a machine that warms up or slows down favours none. The plain text is
// the answer that a later turn sees. One short text per way is decoded before anything is measured.
//
// Counts and texts depend on the prompt, its task's name and the seed only, not on the order of tasks or prompts; the
// counts under a pacing rule, and sampled texts under it, also depend on what the clock said.
// Throws Error{data} naming prompt and task when a prompt leaves no room for an answer.
std::vector<TaskResult> measure(const target::Target& target, draft::Proposer* draft, const std::vector<Task>& tasks,
                                const Words& words, const MeasureOptions& options);

}  // namespace pacer::eval
