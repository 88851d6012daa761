// Warm-up steps, timed steps, and the memory between them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace pacer::bench {

// Of one case. MB are 10^6 bytes.
struct Timings {
  std::vector<double> wall, cpu;         // seconds per timed step; CPU of the whole process, all threads
  double peak_rss_mb = 0;                // largest resident set of the process so far
  std::optional<double> delta_rss_mb{};  // peak since right before the first step, above the resident set then
};

double median(std::vector<double> values);  // of a list that is not empty; the mean of the middle two of an even one

// Runs `step` warmup + steps times; the first ones are not timed.
//
// Memory: freed memory is handed back, the resident set read, and the kernel's mark of the largest resident set
// (VmHWM) reset, all right before the first step. delta_rss_mb is empty, with a warning, where the kernel does not
// let the mark be reset. Throws Error{usage} when steps < 1.
Timings time_steps(int64_t warmup, int64_t steps, const std::function<void()>& step);

// VmRSS and VmHWM of this process in bytes. Throws Error{resources} without /proc.
struct Resident {
  uint64_t now = 0, peak = 0;
};
Resident resident();

}  // namespace pacer::bench
