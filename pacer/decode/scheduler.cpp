#include "pacer/decode/scheduler.h"

#include <algorithm>
#include <string>

#include "pacer/base/error.h"

namespace pacer::decode {

Schedule schedule_prefixes(std::span<const std::vector<double>> confidence, std::span<const double> steps_per_second,
                           bool early_stop) {
  struct Candidate {
    double survival;
    size_t request, slot;
  };
  const size_t requests = confidence.size();
  if (requests >= steps_per_second.size()) {
    throw Error(ErrorKind::data, "the table of steps per second ends at " + std::to_string(steps_per_second.size()) +
                                     " rows, " + std::to_string(requests) + " requests need one row each");
  }
  std::vector<Candidate> candidates;
  for (size_t r = 0; r < requests; ++r) {
    double survival = 1.0;
    for (size_t j = 0; j < confidence[r].size(); ++j) {
      survival *= confidence[r][j];
      if (survival <= 0.0) break;
      candidates.push_back({survival, r, j});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    if (a.survival != b.survival) return a.survival > b.survival;
    return a.slot != b.slot ? a.slot < b.slot : a.request < b.request;
  });

  Schedule best;
  best.lengths.assign(requests, 0);
  double expected = static_cast<double>(requests);
  best.throughput = expected * steps_per_second[requests];
  best.trace.push_back(best.throughput);
  std::vector<int64_t> lengths = best.lengths;
  size_t rows = requests;
  for (const Candidate& candidate : candidates) {
    if (++rows >= steps_per_second.size()) break;
    expected += candidate.survival;
    lengths[candidate.request] = static_cast<int64_t>(candidate.slot) + 1;
    const double throughput = expected * steps_per_second[rows];
    best.trace.push_back(throughput);
    if (throughput > best.throughput) {
      best.throughput = throughput;
      best.lengths = lengths;
    } else if (early_stop) {
      break;
    }
  }
  return best;
}

}  // namespace pacer::decode
