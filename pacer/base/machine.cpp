#include "pacer/base/machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

namespace pacer {
namespace {

// The text after the separator in the first line that begins with `key`, without blanks and quotes around it.
std::string value_of(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const size_t at = line.find(separator);
    if (!line.starts_with(key) || at == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t\"", at + 1);
    const size_t last = line.find_last_not_of(" \t\"");
    if (first != std::string::npos && first <= last) return line.substr(first, last - first + 1);
  }
  return {};
}

int usable_cores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace

Machine this_machine() {
  Machine machine;
  utsname kernel{};
  const bool known = ::uname(&kernel) == 0;
  machine.processor = value_of("/proc/cpuinfo", "model name", ':');
  if (machine.processor.empty() && known) machine.processor = kernel.machine;
  machine.cores = usable_cores();
  const long pages = ::sysconf(_SC_PHYS_PAGES), page_bytes = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page_bytes > 0) {
    machine.memory_bytes = static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
  }
  machine.system = value_of("/etc/os-release", "PRETTY_NAME", '=');
  if (known) {
    machine.system += (machine.system.empty() ? "" : ", ") + std::string(kernel.sysname) + " " + kernel.release;
  }
  return machine;
}

OrderedJson to_json(const Machine& machine) {
  return {{"processor", machine.processor},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory_bytes},
          {"system", machine.system}};
}

}  // namespace pacer
