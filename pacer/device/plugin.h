// The door between Pacer and a back end: one shared library per back end, found and loaded at run time.
//
// A library named libpacer_NAME.so in one of the folders of plugin_folders() (plugin_loader.h) exports exactly one
// function,
//     extern "C" const pacer::device::Plugin* pacer_device_plugin();
// whose result lives as long as the process. The library is opened once with RTLD_NOW | RTLD_GLOBAL and never closed:
// LibTorch keeps what a back end registers for ever.
//
// Opening the library changes nothing in LibTorch: `pacer doctor` opens every library to print its rows. Only load()
// registers (device name, guard, allocators, operators), so that a process that asked for another device is not
// touched. LibTorch has room for one foreign back end (PrivateUse1) per process.
//
// Both sides are built from one source tree with one compiler; interface_version catches a stale library. Members are
// only ever added at the end, and each change raises kPluginInterface. A plugin may include headers of pacer/base and
// pacer/device and must link none of their libraries: it would have its own copy of their state.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include "pacer/device/capabilities.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace pacer::device {

inline constexpr uint32_t kPluginInterface = 1;
inline constexpr const char* kPluginSymbol = "pacer_device_plugin";

// How a vendor reads its variable of visible devices (visible_devices.h has the rules).
enum class VisibilityRule {
  none,         // there is no such variable
  first_valid,  // comma-separated numbers or UUIDs; the list ends at the first entry that is not a device
  ascending,    // comma-separated numbers that ascend; one that does not ascend voids the list
};

struct Visibility {
  VisibilityRule rule = VisibilityRule::none;
  std::string variable;  // name of the environment variable
  // true: device_count() is what is left after the variable; false: it is what the machine has.
  bool runtime_applies_it = false;
  std::string count_variable{};  // which says how many devices there are, of simulated ones; "": the machine says it
};

// What load() found. Vendor software that is not on this machine is no failure of `auto`; a library that is there and
// does not work is one, and load() throws for it.
struct Loaded {
  bool present = false;
  std::string note;  // present: version and place of the vendor's library; absent: what was looked for and where
};

// A row of `pacer doctor`: an environment variable that matters to this back end and what to do about it.
struct EnvironmentNote {
  std::string variable;
  std::string meaning;
  std::string advice;  // for the value that the variable has now; empty: nothing to do
};

// A rule or a fault of a simulated device that tests turn on and off, or a debug aid of a real one.
struct Switch {
  std::string name;
  std::string meaning;
  int64_t value;  // as it stands now; 0: off
  bool flag;      // 0 or 1 and nothing else; otherwise a number: a seed, a limit, a counter
};

// Fused operators in Pacer's own form; null: there is none and the plain path is used. Differentiable where said.
struct FusedOperators {
  // x [..., H], weight [H] -> [..., H]: x / sqrt(mean(x^2) + epsilon) * weight. Differentiable.
  at::Tensor (*rms_norm)(const at::Tensor& x, const at::Tensor& weight, double epsilon) = nullptr;
  // gate_up [..., 2F] -> [..., F]: silu(first half) * second half. Differentiable.
  at::Tensor (*swiglu)(const at::Tensor& gate_up) = nullptr;
  // query [B, N, Q, D], key and value [B, N or fewer, K, D] -> [B, N, Q, D]; visible: bool [Q, K] or [B, 1, Q, K],
  // true where a query sees a key; none: all. Differentiable. Rows that see nothing are unspecified.
  at::Tensor (*attention)(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& visible, double scale) = nullptr;
};

// Every function may throw a std::exception whose what() is a sentence for the user. A null pointer means that the
// plugin has no such part.
struct Plugin {
  uint32_t interface_version = kPluginInterface;

  // --- the device; all null in a plugin that brings collectives only
  const char* product = nullptr;     // "simnpu": what users ask for, and what reports and checkpoints say
  const char* summary = nullptr;     // one line for help texts and doctor: "Ascend NPU through torch_npu"
  const char* torch_name = nullptr;  // how LibTorch spells the device: "npu"
  c10::DeviceType torch_type = c10::DeviceType::CPU;
  bool simulated = false;  // `auto` never takes it

  // Loads the vendor's software and registers the back end with LibTorch. Called at most once per process and before
  // every function below. Throws when the software is there and broken.
  Loaded (*load)() = nullptr;
  // Devices that the runtime reports, read after load(). Not throwing for "none": 0.
  int (*device_count)() = nullptr;
  Visibility (*visibility)() = nullptr;       // null: no variable
  Capabilities (*capabilities)() = nullptr;   // what the vendor promises; doctor's probes check it
  const FusedOperators* operators = nullptr;  // null: none
  // A hint for the user about an error that the device or its collectives threw, "" when there is nothing to add.
  std::string (*advice)(const std::string& error_message) = nullptr;

  // --- what doctor prints
  std::vector<EnvironmentNote> (*environment)() = nullptr;  // callable before load()

  // --- collectives
  const char* collectives = nullptr;  // "hccl"; the library libpacer_hccl.so brings it when make_backend is null
  // A communicator of `size` ranks on the current device. Blocking operations give up after `timeout`. The caller
  // passes a store with a prefix of its own per group.
  c10::intrusive_ptr<c10d::Backend> (*make_backend)(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                                    std::chrono::milliseconds timeout) = nullptr;

  // --- for tests and debugging
  std::vector<Switch> (*switches)() = nullptr;  // callable before load()
  // Throws for a name that is not in the list or a value it cannot have.
  void (*set_switch)(const std::string& name, int64_t value) = nullptr;
};

}  // namespace pacer::device

// What a plugin defines.
extern "C" __attribute__((visibility("default"))) const pacer::device::Plugin* pacer_device_plugin();
