#include "pacer/device/runtime.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/machine.h"
#include "pacer/device/back_ends.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/names.h"
#include "pacer/device/visible_devices.h"

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

std::string threads_text(const Machine& machine) {
  return machine.processor + ", " + std::to_string(at::get_num_threads()) + " of " + std::to_string(machine.cores) +
         " cores";
}

Capabilities host_capabilities() {
  Capabilities table;
  table.present = {Capability::host_memory,        Capability::float64,        Capability::int64_indices,
                   Capability::zero_size_launches, Capability::bfloat16_gru,   Capability::bfloat16_logsumexp,
                   Capability::flash_attention,    Capability::reduce_float64, Capability::reduce_bool,
                   Capability::reduce_uint8,       Capability::split_groups,   Capability::single_rank_collectives};
  // What Gloo takes; it has no 16-bit integers.
  for (const Collective collective : all_collectives()) {
    table.collectives[collective] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                     at::kByte,  at::kBool,   at::kInt,  at::kLong};
  }
  return table;
}

}  // namespace

Runtime Runtime::host(const std::string& why) {
  Runtime runtime;
  runtime.product_ = runtime.name_ = kHost;
  runtime.capabilities_ = std::make_shared<Capabilities>(host_capabilities());
  log_info("device " + runtime.name_ + " (" + why + "): " + threads_text(this_machine()));
  return runtime;
}

Runtime Runtime::accelerator(const Plugin& plugin, int torch_index, const std::string& why) {
  Runtime runtime;
  runtime.device_ = c10::Device(plugin.torch_type, static_cast<c10::DeviceIndex>(torch_index));
  runtime.product_ = plugin.product;
  runtime.name_ = runtime.product_ + ":" + std::to_string(torch_index);
  runtime.plugin_ = &plugin;
  runtime.capabilities_ = std::make_shared<Capabilities>(plugin.capabilities());
  runtime.bind_thread();
  const MemoryInfo memory = runtime.memory();
  log_info("device " + runtime.name_ + " (" + why + "): " + plugin.summary + ", " +
           std::to_string(memory.available_bytes >> 20) + " of " + std::to_string(memory.total_bytes >> 20) +
           " MB free");
  return runtime;
}

Runtime Runtime::open(const std::string& spec) {
  const DeviceName name = parse_device_name(spec);
  if (name.product == kHost) return host("as asked for");
  const auto take = [&](const Availability& found, const std::string& why) {
    const Visibility visibility = found.plugin->visibility == nullptr ? Visibility() : found.plugin->visibility();
    const auto count = static_cast<int>(found.devices.size());
    const int place = name.index
                          ? *name.index
                          : local_device(LaunchRanks::from_environment(), count, found.plugin->product, visibility);
    if (place >= count) {
      throw Error(ErrorKind::device,
                  "device \"" + spec + "\" is not there: visible are " + std::to_string(count) + ", numbered from 0",
                  visibility.variable.empty() ? "" : visibility.variable + " chooses which devices are visible");
    }
    return accelerator(*found.plugin, found.devices[static_cast<size_t>(place)], why);
  };

  if (name.product == kAuto) {
    std::string passed;
    for (const std::string& product : preferred_products()) {
      // A process that tests on a simulator goes on with the host: the others cannot be loaded beside it.
      if (const Plugin* other = loaded_foreign_back_end(); other != nullptr && other->product != product) {
        passed += (passed.empty() ? "" : "; ") + product + ": this process has loaded " + other->product;
        continue;
      }
      const Availability found = examine(product);
      if (found.there()) return take(found, "auto" + (passed.empty() ? "" : ": " + passed));
      passed += (passed.empty() ? "" : "; ") + product + ": " + found.note;
    }
    return host("auto: " + passed);
  }

  const Availability found = examine(name.product);
  if (found.there()) return take(found, "as asked for");
  if (found.plugin == nullptr && !is_known_product(name.product)) {
    throw Error(ErrorKind::usage, "device \"" + spec + "\" is not known; allowed are " + allowed_devices());
  }
  throw Error(ErrorKind::device, "device \"" + spec + "\" is not there: " + found.note,
              "use \"cpu\" or \"auto\"; `pacer doctor` says what was looked for");
}

MemoryInfo Runtime::memory() const {
  if (plugin_ != nullptr) {
    const auto [available, total] = device_allocator(device_).getMemoryInfo(device_.index());
    return {total, available};
  }
  MemoryInfo info{meminfo_bytes("MemTotal"), meminfo_bytes("MemAvailable")};
  if (const auto limit = number_in("/sys/fs/cgroup/memory.max"); limit && *limit < info.total_bytes) {
    const uint64_t used = number_in("/sys/fs/cgroup/memory.current").value_or(0);
    info.total_bytes = *limit;
    info.available_bytes = std::min(info.available_bytes, *limit - std::min(used, *limit));
  }
  return info;
}

void Runtime::bind_thread() const {
  if (plugin_ != nullptr) c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
}

void Runtime::synchronize() const {
  if (plugin_ != nullptr) c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
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
