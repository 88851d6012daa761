// The machine that a measurement was taken on, for run folders and reports.
#pragma once

#include <cstdint>
#include <string>

#include "pacer/base/json.h"

namespace pacer {

struct Machine {
  std::string processor;  // "AMD EPYC 9B45", as the kernel names it; the architecture where it names none
  int cores = 0;          // logical processors that this process may run on
  uint64_t memory_bytes = 0;
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
};

// Never throws; what cannot be found out is empty or 0.
Machine this_machine();

OrderedJson to_json(const Machine& machine);

}  // namespace pacer
