#include "pacer/device/kernels.h"

#include <cstdlib>

#include "pacer/base/error.h"
#include "pacer/device/back_ends.h"

namespace pacer::device {
namespace {

KernelPath wished(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? KernelPath::automatic : parse_kernel_path(value, variable);
}

KernelPaths& chosen() {
  static KernelPaths paths = {wished("PACER_KERNEL_IMPL"), wished("PACER_ATTENTION_IMPL")};
  return paths;
}

// The back end that computes on such tensors; null for the host and for one that is no plugin.
const Plugin* back_end_of(c10::Device device) {
  const Plugin* plugin = in_host_memory(device) ? nullptr : loaded_foreign_back_end();
  return plugin != nullptr && plugin->torch_type == device.type() ? plugin : nullptr;
}

}  // namespace

KernelPath parse_kernel_path(const std::string& name, const std::string& place) {
  for (const KernelPath path : {KernelPath::automatic, KernelPath::plain}) {
    if (name == name_of(path)) return path;
  }
  throw Error(ErrorKind::usage, place + " is \"" + name + "\"; allowed are auto and plain");
}

const char* name_of(KernelPath path) { return path == KernelPath::plain ? "plain" : "auto"; }

void use_kernel_paths(const KernelPaths& paths) { chosen() = paths; }
KernelPaths kernel_paths() { return chosen(); }

c10::Device host_device() { return c10::Device(c10::kCPU); }

bool in_host_memory(c10::Device device) { return device.is_cpu(); }
bool own_kernels(c10::Device device) { return in_host_memory(device) && chosen().kernels == KernelPath::automatic; }
bool own_attention(c10::Device device) { return in_host_memory(device) && chosen().attention == KernelPath::automatic; }

int64_t most_reduced_columns(c10::Device device) {
  const Plugin* plugin = back_end_of(device);
  return plugin != nullptr && plugin->capabilities != nullptr ? plugin->capabilities().most_reduced_columns : 0;
}

const FusedOperators& fused_operators(c10::Device device) {
  static const FusedOperators none;
  const Plugin* plugin = chosen().kernels == KernelPath::plain ? nullptr : back_end_of(device);
  return plugin != nullptr && plugin->operators != nullptr ? *plugin->operators : none;
}

}  // namespace pacer::device
