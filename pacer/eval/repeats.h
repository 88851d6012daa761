// The same measurement several times: is a way of decoding ever slower than plain decoding, beyond the noise?
#pragma once

#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/eval/measure.h"

namespace pacer::eval {

// Of one task: plain CPU seconds / the other way's, both summed over its texts, once per run.
struct RepeatedSpeedUp {
  std::string task;
  std::vector<double> runs;  // in the order in which they were made
  double median = 0.0, smallest = 0.0, largest = 0.0;
};

// Results of measure(), one per run, over the same tasks. The way is the paced one if it was measured, else the
// draft's, else prompt lookup. Throws Error{bug} when runs differ in their tasks or nothing but plain decoding was
// measured.
std::vector<RepeatedSpeedUp> repeated_speed_ups(const std::vector<std::vector<TaskResult>>& runs);

// {"runs": R, "way": "paced" | "speculative" | "lookup", "tasks": {NAME: {"median", "smallest", "largest", "runs"}},
//  "slowest": {"task", "median"}}
OrderedJson repeats_json(const std::vector<std::vector<TaskResult>>& runs);
std::string repeats_table(const std::vector<std::vector<TaskResult>>& runs);

}  // namespace pacer::eval
