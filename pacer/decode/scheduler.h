// How many drafts of every request are worth verifying on this machine (DSpark paper, algorithm 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pacer::decode {

struct Schedule {
  std::vector<int64_t> lengths;  // [R] drafts to verify per request
  double throughput = 0.0;       // expected tokens per second of that choice
  std::vector<double> trace;     // expected throughput after 0, 1, 2, ... admissions
};

// confidence[r][j]: calibrated probability that draft j of request r is accepted given the drafts before it.
// steps_per_second[B]: how often per second the target runs B rows; index 0 is not used. Admission ends with its last
// row.
//
// With a[r][j] = prod_{i<=j} confidence[r][i], drafts are admitted in descending order of a (ties: smaller j, then
// smaller r), B = R + admitted rows, tau = R + sum of admitted a; the choice is the best tau * steps_per_second[B].
// early_stop ends at the first admission that does not improve: needed when the confidence of a draft depends on the
// drafts sampled before it, because a search that looks past them leaks what was sampled into the length, and the
// output is then no longer distributed as the target's. Throws Error{data} when the table has no row for R.
Schedule schedule_prefixes(std::span<const std::vector<double>> confidence, std::span<const double> steps_per_second,
                           bool early_stop = true);

}  // namespace pacer::decode
