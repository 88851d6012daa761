#include "pacer/bench/stopclock.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"
#include "pacer/base/logging.h"

namespace pacer::bench {
namespace {

constexpr double kMegabyte = 1e6;

// "5" resets the mark of the largest resident set (proc(5), clear_refs).
bool reset_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << "5" << std::flush;
  return file.good();
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) throw Error(ErrorKind::bug, "the median of nothing");
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

Resident resident() {
  std::ifstream file("/proc/self/status");
  Resident found;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    words >> name >> kilobytes;
    if (name == "VmRSS:") found.now = kilobytes * 1024;
    if (name == "VmHWM:") found.peak = kilobytes * 1024;
  }
  if (found.now == 0 || found.peak == 0) {
    throw Error(ErrorKind::resources, "/proc/self/status gives no VmRSS and VmHWM", "is /proc mounted?");
  }
  return found;
}

Timings time_steps(int64_t warmup, int64_t steps, const std::function<void()>& step) {
  if (steps < 1) throw Error(ErrorKind::usage, "steps is " + std::to_string(steps) + ", allowed is 1 or more");
  // Memory that was freed but kept would hide what the steps need.
  ::malloc_trim(0);
  const Resident before = resident();
  const bool exact = reset_peak();
  if (!exact) log_warning("/proc/self/clear_refs cannot be written: delta_rss_mb is not measured");

  Timings timings;
  for (int64_t i = 0; i < warmup + steps; ++i) {
    const Stopwatch watch;
    step();
    const double wall = watch.wall(), cpu = watch.cpu();
    if (i < warmup) continue;
    timings.wall.push_back(wall);
    timings.cpu.push_back(cpu);
  }
  const Resident after = resident();
  timings.peak_rss_mb = static_cast<double>(std::max(before.peak, after.peak)) / kMegabyte;
  if (exact) {
    // The kernel batches its counters per thread, so the peak may be read a little below `before`.
    timings.delta_rss_mb = static_cast<double>(after.peak - std::min(after.peak, before.now)) / kMegabyte;
  }
  return timings;
}

}  // namespace pacer::bench
