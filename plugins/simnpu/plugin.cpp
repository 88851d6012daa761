// The door: what Pacer finds in libpacer_simnpu.so.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "pacer/device/plugin.h"
#include "plugins/npu/fused.h"
#include "plugins/simnpu/collectives/sim_hccl.h"
#include "plugins/simnpu/memory/fault.h"
#include "plugins/simnpu/operators/fallback.h"
#include "plugins/simnpu/operators/fused.h"
#include "plugins/simnpu/runtime/guard.h"
#include "plugins/simnpu/runtime/runtime.h"
#include "plugins/simnpu/settings.h"

namespace pacer::simnpu {
namespace {

using device::Capability;
using device::Collective;

device::FusedOperators& operators() {
  static device::FusedOperators found;  // none before load()
  return found;
}

device::Loaded load() {
  settings();
  list_switches();  // a mistake in the environment is told before anything is registered
  register_device();
  register_operators();
  std::string missing;
  operators() = npu::find_fused_operators(missing);
  if (!missing.empty()) throw std::logic_error("the simulator lacks fused operators: " + missing);
  install_fault_handler();
  // Before LibTorch's own statics go: it was loaded earlier, so its destructors run later.
  std::atexit([] { Runtime::get().shut_down(); });
  device::Loaded loaded;
  loaded.present = true;
  loaded.note = std::to_string(settings().device_count) + " simulated devices with " +
                std::to_string(settings().memory_bytes >> 20) + " MiB each";
  return loaded;
}

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout) {
  return c10::make_intrusive<SimHccl>(store, rank, size, timeout);
}

int device_count() { return Runtime::get().device_count(); }

device::Visibility visibility() {
  return {device::VisibilityRule::ascending, "ASCEND_RT_VISIBLE_DEVICES", !on(Switch::ignore_visible_devices),
          "SIMNPU_DEVICE_COUNT"};
}

device::Capabilities capabilities() {
  device::Capabilities all;
  const auto unless = [&](Switch rule, Capability capability) {
    if (!on(rule)) all.present.insert(capability);
  };
  all.present = {Capability::streams, Capability::coalesced_collectives};
  unless(Switch::refuse_float64, Capability::float64);
  unless(Switch::refuse_int64_indices, Capability::int64_indices);
  unless(Switch::refuse_zero_size, Capability::zero_size_launches);
  unless(Switch::refuse_bfloat16_gru, Capability::bfloat16_gru);
  unless(Switch::refuse_bfloat16_logsumexp, Capability::bfloat16_logsumexp);
  unless(Switch::refuse_event_timing, Capability::event_timing);
  unless(Switch::refuse_reduce_float64, Capability::reduce_float64);
  unless(Switch::refuse_reduce_bool, Capability::reduce_bool);
  unless(Switch::refuse_reduce_uint8, Capability::reduce_uint8);
  unless(Switch::refuse_single_rank, Capability::single_rank_collectives);
  const std::set<at::ScalarType> sums = {at::kChar, at::kShort, at::kInt,     at::kLong,
                                         at::kHalf, at::kFloat, at::kBFloat16};
  std::set<at::ScalarType> reduced = sums, moved = sums;
  if (!on(Switch::refuse_reduce_float64)) reduced.insert(at::kDouble);
  if (!on(Switch::refuse_reduce_bool)) reduced.insert(at::kBool);
  if (!on(Switch::refuse_reduce_uint8)) reduced.insert(at::kByte);
  moved.insert({at::kDouble, at::kBool, at::kByte});
  for (const Collective each : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    all.collectives[each] = reduced;
  }
  for (const Collective each : {Collective::all_gather, Collective::broadcast, Collective::gather, Collective::scatter,
                                Collective::all_to_all}) {
    all.collectives[each] = moved;
  }
  // The on-chip buffer of the real device holds 4096 columns of a softmax in f32.
  const int64_t columns = value_of(Switch::reduced_columns);
  all.most_reduced_columns = columns > 0 ? columns : 4096;
  return all;
}

std::vector<device::EnvironmentNote> environment() {
  const auto note = [](const char* variable, const char* meaning) {
    return device::EnvironmentNote{variable, meaning, ""};
  };
  return {note("SIMNPU_DEVICE_COUNT", "simulated devices"), note("SIMNPU_MEMORY_MB", "memory of each, MiB"),
          note("SIMNPU_PINNED_MB", "pinned host memory, MiB"),
          note("SIMNPU_SWITCHES", "rules and faults to begin with: name=value,...")};
}

const device::Plugin* plugin() {
  static const device::Plugin* const one = [] {
    auto* made = new device::Plugin;
    made->product = "simnpu";
    made->summary = "simulated Ascend NPU: asynchronous streams, a hazard checker, the real device's refusals";
    made->torch_name = "npu";
    made->torch_type = kDevice;
    made->simulated = true;
    made->load = &load;
    made->device_count = &device_count;
    made->visibility = &visibility;
    made->capabilities = &capabilities;
    made->operators = &operators();
    made->environment = &environment;
    made->collectives = "hccl";
    made->make_backend = &make_backend;
    made->switches = &list_switches;
    made->set_switch = &set_switch;
    return made;
  }();
  return one;
}

}  // namespace
}  // namespace pacer::simnpu

extern "C" const pacer::device::Plugin* pacer_device_plugin() { return pacer::simnpu::plugin(); }
