#include "tests/support/cost.h"

#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <stdexcept>
#include <string>

namespace pacer::test {
namespace {

// A line of /proc/self/status, in bytes.
uint64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1)) << 10;
  }
  throw std::runtime_error("no " + name + " in /proc/self/status");
}

}  // namespace

double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

MemoryWatch::MemoryWatch() {
  ::malloc_trim(0);                               // what earlier tests freed must not hide what is taken now
  std::ofstream("/proc/self/clear_refs") << "5";  // forgets the earlier peak
  start_ = status_bytes("VmRSS");
}

uint64_t MemoryWatch::growth() const {
#ifdef PACER_ADDRESS_SANITIZER
  return 0;
#else
  return status_bytes("VmHWM") - std::min(start_, status_bytes("VmHWM"));
#endif
}

}  // namespace pacer::test
