#include "pacer/train/environment.h"

#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>

#include "pacer/base/machine.h"
#include "pacer/base/version.h"
#include "pacer/train/plan.h"

namespace pacer::train {
namespace {

std::string time_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

// Only settings that change what is computed or how fast; the rest of an environment is nobody's business.
OrderedJson settings() {
  OrderedJson found = OrderedJson::object();
  for (const char* name : {"OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "MKL_CBWR",
                           "ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "PACER_KERNELS", "THP_MEM_ALLOC_ENABLE"}) {
    if (const char* value = std::getenv(name)) found[name] = value;
  }
  return found;
}

}  // namespace

OrderedJson environment(const device::Runtime& runtime, const std::vector<std::string>& command) {
  return {{"pacer", version()},          {"compiler", compiler()},
          {"started", time_now()},       {"command", command},
          {"device", runtime.name()},    {"threads", runtime.threads()},
          {"kernels", kernel_choices()}, {"machine", to_json(this_machine())},
          {"settings", settings()}};
}

}  // namespace pacer::train
