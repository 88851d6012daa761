#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "pacer/device/back_ends.h"

namespace pacer::device {
namespace {

constexpr const char* kLibrary = "libtorch_cuda.so";
constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

// LibTorch's CUDA half registers itself when its library is opened.
Loaded load() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA) && ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* reason = ::dlerror();
    const std::string message = reason == nullptr ? "" : reason;
    // A message about another file means that this one is there and needs it.
    if (message.starts_with(std::string(kLibrary) + ":")) return {false, "this LibTorch was built without CUDA"};
    throw std::runtime_error(message);
  }
  return {true, kLibrary};
}

int device_count() {
  if (!c10::impl::hasDeviceGuardImpl(c10::DeviceType::CUDA)) return 0;
  return c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).deviceCount();
}

Visibility visibility() {
  return {.rule = VisibilityRule::first_valid, .variable = kVariable, .runtime_applies_it = true};
}

Capabilities capabilities() {
  Capabilities table;
  for (const Capability capability : all_capabilities()) table.present.insert(capability);
  table.present.erase(Capability::host_memory);
  for (const Collective collective : all_collectives()) {
    table.collectives[collective] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                     at::kByte,  at::kBool,   at::kInt,  at::kLong};
  }
  return table;
}

std::vector<EnvironmentNote> environment() {
  std::vector<EnvironmentNote> notes = {
      {kVariable, "devices that this process may use", ""},
      {"CUDA_LAUNCH_BLOCKING", "1: every launch waits until it is done", ""},
      {"PYTORCH_ALLOC_CONF", "how device memory is kept for reuse", ""},
  };
  if (const char* value = std::getenv("CUDA_LAUNCH_BLOCKING"); value != nullptr && std::string(value) == "1") {
    notes[1].advice = "unset it unless you look for an error: nothing overlaps";
  }
  return notes;
}

}  // namespace

const Plugin& cuda_back_end() {
  static const Plugin plugin = [] {
    Plugin built;
    built.product = "cuda";
    built.summary = "NVIDIA CUDA through LibTorch";
    built.torch_name = "cuda";
    built.torch_type = c10::DeviceType::CUDA;
    built.load = load;
    built.device_count = device_count;
    built.visibility = visibility;
    built.capabilities = capabilities;
    built.environment = environment;
    built.collectives = "nccl";
    return built;
  }();
  return plugin;
}

}  // namespace pacer::device
