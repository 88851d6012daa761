// When to draft, and how far: a rule that measures what drafting costs and brings, and keeps away from losses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "pacer/base/clocks.h"
#include "pacer/decode/acceptance.h"
#include "pacer/decode/row_costs.h"
#include "pacer/decode/statistics.h"

namespace pacer::decode {

struct PaceOptions {
  std::function<double()> clock = process_cpu_seconds;  // seconds, of whatever must not grow
  bool lookup = true;                                   // prompt lookup proposes where it does better than the draft
  int64_t lookup_tokens = 5;                            // per proposal
  double trying = 0.005;   // share of the time that may be lost on finding out whether the draft pays now
  double allowance = 3.0;  // plain steps that may be lost so at once, at the start of a session too
  double margin = 0.03;    // drafting must promise so much more speed than a plain step
};

// What could be proposed in the next round.
struct Opening {
  int64_t room = 0;                // most drafts that the text has room for
  int64_t remaining = 0;           // tokens until the text must end
  int64_t draft = 0;               // longest proposal of the draft; 0 without a draft
  int64_t behind = 0;              // tokens that the draft has to catch up with first
  std::vector<int64_t> looked_up;  // what prompt lookup would propose
  int64_t match = 0;               // tokens that its match has in common
};

struct Move {
  Source source = Source::none;
  int64_t tokens = 0;  // most drafts to ask for
  bool trial = false;  // not because it promises to pay, but to see whether it does
};

// What came of a round.
struct Played {
  Source source = Source::none;
  int64_t drafted = 0;                 // before anything was cut
  int64_t verified = 0, accepted = 0;  // drafts that the target saw, and that passed
  std::vector<float> confidence;       // logits of the verified drafts, empty without a confidence head
  int64_t caught_up = 0;               // tokens
  double catch_up_s = 0.0, propose_s = 0.0, target_s = 0.0;  // by PaceOptions::clock
  std::vector<int64_t> committed;                            // tokens that the round added to the text
};

// The rule of one session: it lives as long as the caller likes and carries what it learned from text to text.
//
// A round of n drafts is worth (1 + sum of survival up to slot k, k < n) tokens and costs the target's pass over n + 1
// rows, the draft's proposal, and its catching up, which is spread over the rounds to come. plan() takes the source and
// the length with the most tokens per second if that beats a plain step by `margin`; costs are what the clock said,
// survival is what was seen (Acceptance). Costs are counted in plain steps: a pass over several rows is compared with a
// plain step right before or behind it, and a proposal with its own round's pass, because what else the machine does
// changes seconds by more than drafting does. What prompt lookup would have proposed is compared with the text even
// when nobody asked for it, so its figures cost nothing. Those of an idle draft grow old: it is tried again when the
// share `trying` of the time since has paid for what a failure costs, and for twice as much after every failure in a
// row of the same text. So drafting that never pays costs that share and no more, and what a text may lose is left over
// for the start of the next one, where it is better spent.
//
// Every decision reads the committed text and clocks, and keep() the confidences of the slots before and at the one
// that it decides about; neither reads a token that may still be rejected. So the rule is causal, and sampled text has
// the target's distribution; greedy text is the plain text whatever is proposed. Not thread-safe.
class Pace {
 public:
  explicit Pace(PaceOptions options = {});
  virtual ~Pace() = default;

  const PaceOptions& options() const { return options_; }
  double now() const { return options_.clock(); }

  void begin_text();
  Move plan(const Opening& opening);

  // Leading slots of the draft's proposal that are worth verifying: the proposal ends before the first slot from which
  // on no number of further slots is expected to bring more than the target's time for them. A slot's own confidence is
  // read for itself only, later slots count with what was seen of them. confidence: logits of all drafted slots, of
  // which slot k's depends on tokens before slot k only. Virtual for the test that a rule that looks ahead is caught.
  virtual int64_t keep(std::span<const float> confidence);

  void played(const Played& round);

  // Of the target's pass over this many rows, in plain steps; assumed until it was measured, never below 1.
  double pass_cost(int64_t rows) const;

 protected:
  double accepts(float logit) const;  // probability, set right by what was accepted so far

 private:
  struct Guess {  // of prompt lookup, not yet decided by the text
    std::vector<int64_t> tokens;
    size_t match;
    int64_t next = 0;
  };
  // A way to play the round.
  struct Choice {
    int64_t tokens = 0;
    double expected = 1.0, cost = 1.0;  // tokens of the round, and plain steps that it costs
    double rate() const { return expected / cost; }
  };
  Choice best_lookup(const Opening& opening) const;
  Choice best_draft(const Opening& opening) const;
  double proposal_cost(int64_t drafts) const;
  void learn_costs(const Played& round);
  void learn_from_draft(const Played& round);
  void learn_from_lookup(const std::vector<int64_t>& committed);

  PaceOptions options_;
  // All costs are in plain steps.
  RowCosts pass_, proposal_;                   // by rows of the pass; by drafts of the proposal
  int64_t plain_steps_ = 0, since_plain_ = 0;  // of the session; rounds since the last one
  int64_t last_rows_ = 0;                      // of the round before in this text
  double last_s_ = 0.0, step_s_ = 0.0;         // its pass; a plain step, as the latest pass says
  double catch_up_per_token_ = 0.0;
  Acceptance draft_;
  std::vector<Acceptance> lookup_;  // by length of the match
  std::vector<Guess> guesses_;
  double predicted_ = 0.0, passed_ = 0.0;  // decayed sums over verified drafts with a confidence
  double credit_;                          // plain steps that may be lost
  bool confident_ = false, barred_ = false, trial_ = false;
  int64_t failures_ = 0;  // rounds of this text in a row in which drafts were tried and lost time
  double rate_ = 1.0;     // tokens per plain step that the round must not fall below
  int64_t cut_at_ = -1;   // slot that keep() refused
  double cut_probability_ = 0.0;
};

}  // namespace pacer::decode
