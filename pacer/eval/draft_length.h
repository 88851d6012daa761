// How many tokens a round should propose: what was measured at one length, carried over to all shorter ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/eval/summary.h"

namespace pacer::eval {

struct DraftLength {
  int64_t drafts = 0;            // tokens that a round proposes
  double acceptance_length = 1;  // 1 + sum over k < drafts of survival[k]
  double speed_up = 1;           // against plain steps, prompts left out
};

// What a round costs, CPU seconds; with the figures for every length up to the one that was measured.
struct LengthAdvice {
  double plain_step_s = 0, propose_s = 0, verify_s = 0,
         host_s = 0;                 // host: draws, acceptance and bookkeeping of a round
  std::vector<DraftLength> lengths;  // [K + 1], 0 drafts first: plain decoding
  DraftLength best;                  // the fastest; 0 drafts: no gain is expected
};

// From the draft's own way of decoding, without a pacing rule. The target's pass over rows is taken as a straight line
// between a plain step and the measured round, the proposal as equally dear at every length: both are estimates, which
// `pacer eval --drafts 1,2,...` replaces by measurements. Empty without rounds, drafts or plain steps.
std::optional<LengthAdvice> advise_length(const Summary& summary);

OrderedJson advice_json(const LengthAdvice& advice);
// One line for a terminal, with a line break.
std::string advice_text(const LengthAdvice& advice);

// One measurement per number of drafts; the same tasks in each.
struct LengthRun {
  int64_t drafts = 0;
  std::vector<TaskResult> tasks;
};
// From the longest of several: only it tells of all the others.
std::optional<LengthAdvice> advise_length(const std::vector<LengthRun>& runs);

// [{"drafts", "acceptance_length", "speedup_cpu", "speedup_wall", "identical", "round_ms": {"propose", "verify",
// "host"}}]
OrderedJson length_runs_json(const std::vector<LengthRun>& runs);
std::string length_runs_table(const std::vector<LengthRun>& runs);

}  // namespace pacer::eval
