// From texts to figures: sums, speed-ups with their spread, and the JSON that reports read (docs/evaluation.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/eval/measure.h"

namespace pacer::eval {

// Plain seconds divided by the other way's seconds, both summed over the same turns, prompts included.
struct SpeedUp {
  double value = 0.0;
  double low = 0.0, high = 0.0;                        // 5 % and 95 % of 1000 bootstrap resamplings of the turns
  double smallest = 0.0, median = 0.0, largest = 0.0;  // of single turns
};
// Needs at least one pair. The resampling is seeded, so equal seconds give an equal spread.
SpeedUp speed_up(const std::vector<double>& plain_seconds, const std::vector<double>& other_seconds);

// Totals of one way of decoding.
struct Totals {
  int64_t new_tokens = 0;
  decode::PhaseTimes times;
  decode::AcceptanceCounts counts;
  std::optional<SpeedUp> cpu, wall;              // against plain decoding that was timed; not for plain decoding
  std::optional<double> cpu_per_token;           // the same speed-up with both sides divided by their tokens
  std::optional<bool> identical;                 // all texts equal the plain ones; not defined when sampling
  std::vector<std::string> differing;            // "id" or "id/turn" of texts that do not
  std::optional<double> mean_acceptance_length;  // unweighted mean over texts with at least one round
};

struct Summary {
  int64_t prompts = 0, turns = 0, prompt_tokens = 0;
  int64_t prompt_tokens_known = 0;  // of those, what plain decoding did not compute again
  Totals plain;
  std::optional<Totals> speculative, paced, lookup;
  decode::Calibration calibration;
};

// Over the turns of one task, or of several. The order of tasks and turns does not matter.
Summary summarise(const std::vector<TaskResult>& tasks);

// What was measured with which settings, for the head of the result.
struct Setup {
  std::string target, draft;  // paths; draft empty without one
  std::string draft_method;   // Proposer::name()
  std::string dtype;          // "f32" | "bf16"
  int threads = 0;
};

// The whole result (schema "pacer.evaluation/1"): setup, settings, one object per task with its turns, and the total.
OrderedJson result_json(const Setup& setup, const MeasureOptions& options, const std::vector<TaskResult>& tasks);

// The same as a table for a terminal: one line per task and one for the total; ways that were not measured are left
// out.
std::string result_table(const std::vector<TaskResult>& tasks);

// Rows of cells, the first one the head, as aligned text: the first column to the left, the others to the right.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace pacer::eval
