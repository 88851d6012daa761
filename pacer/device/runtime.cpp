#include "pacer/device/runtime.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include <ATen/Parallel.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/machine.h"

namespace pacer::device {
namespace {

// A container's limit counts more than the machine's memory; "max" and a missing file mean no limit.
std::optional<uint64_t> number_in(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

uint64_t meminfo_bytes(const std::string& field) {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    uint64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == field + ":") return kilobytes * 1024;
  }
  throw Error(ErrorKind::device, "/proc/meminfo has no field " + field, "is /proc mounted?");
}

}  // namespace

Runtime Runtime::open(const std::string& spec) {
  if (spec == "auto" || spec == "cpu") {
    const Runtime runtime(c10::Device(c10::kCPU), "cpu");
    const Machine machine = this_machine();
    log_info("device cpu (" + std::string(spec == "cpu" ? "as asked for" : "auto: this build has no other back end") +
             "): " + machine.processor + ", " + std::to_string(runtime.threads()) + " of " +
             std::to_string(machine.cores) + " cores");
    return runtime;
  }
  const std::string kind = spec.substr(0, spec.find(':'));
  if (kind == "cuda" || kind == "npu" || kind == "mps" || kind == "xpu") {
    throw Error(ErrorKind::device, "device \"" + spec + "\" is not there: this build of Pacer computes on the cpu only",
                "use \"cpu\" or \"auto\"");
  }
  throw Error(ErrorKind::usage, "device \"" + spec + "\" is not known; allowed are \"auto\" and \"cpu\"");
}

bool Runtime::can(Capability capability) const {
  switch (capability) {
    case Capability::reduce_float64:
    case Capability::float64:
      return true;
    case Capability::event_timing:  // work on the host is done when the call returns: there is no event to time
      return false;
  }
  throw Error(ErrorKind::bug, "Runtime::can: unknown capability");
}

MemoryInfo Runtime::memory() const {
  MemoryInfo info{meminfo_bytes("MemTotal"), meminfo_bytes("MemAvailable")};
  if (const auto limit = number_in("/sys/fs/cgroup/memory.max"); limit && *limit < info.total_bytes) {
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current").value_or(0);
    info.total_bytes = *limit;
    info.available_bytes = std::min(info.available_bytes, *limit - std::min(used, *limit));
  }
  return info;
}

int Runtime::threads() const { return at::get_num_threads(); }

void Runtime::set_threads(int threads) {
  const int most = this_machine().cores;
  if (threads < 1 || threads > most) {
    throw Error(ErrorKind::usage, "threads: " + std::to_string(threads) + " is outside of 1.." + std::to_string(most) +
                                      ", the cores this process may use");
  }
  at::set_num_threads(threads);
}

}  // namespace pacer::device
