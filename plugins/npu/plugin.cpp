// Ascend NPU through torch_npu: finds its library, starts it, and describes what the device can do. Nothing of
// torch_npu or CANN is linked or included; everything else goes through LibTorch's generic classes.
#include "pacer/device/plugin.h"

#include <cstdlib>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "plugins/npu/advice.h"
#include "plugins/npu/torch_npu.h"

namespace pacer::npu {
namespace {

using device::Capabilities;
using device::Capability;
using device::Collective;

int device_count() { return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1).deviceCount(); }

device::FusedOperators operators;  // none before load()

device::Loaded load() { return load_torch_npu(operators); }

// The driver counts what the variable leaves.
device::Visibility visibility() { return {device::VisibilityRule::ascending, "ASCEND_RT_VISIBLE_DEVICES", true}; }

// What torch_npu's documentation and sources say of 910-class devices; `pacer doctor` tries it.
Capabilities capabilities() {
  Capabilities table;
  table.present = {Capability::streams,       Capability::int64_indices,   Capability::event_timing,
                   Capability::graph_capture, Capability::flash_attention, Capability::coalesced_collectives};
  table.most_reduced_columns = 4096;
  const std::set<at::ScalarType> reducible = {at::kChar, at::kShort, at::kInt,     at::kLong,
                                              at::kHalf, at::kFloat, at::kBFloat16};
  std::set<at::ScalarType> movable = reducible;
  movable.insert({at::kByte, at::kBool, at::kDouble});
  for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
    table.collectives[collective] = reducible;
  }
  for (const Collective collective : {Collective::all_gather, Collective::broadcast, Collective::gather,
                                      Collective::scatter, Collective::all_to_all}) {
    table.collectives[collective] = movable;
  }
  return table;
}

std::string value_of(const char* variable) {
  const char* value = std::getenv(variable);
  return value == nullptr ? "" : value;
}

std::vector<device::EnvironmentNote> environment() {
  const auto note = [](const char* variable, const char* meaning, std::string advice = {}) {
    return device::EnvironmentNote{variable, meaning, std::move(advice)};
  };
  const bool empty_list =
      std::getenv("ASCEND_RT_VISIBLE_DEVICES") != nullptr && value_of("ASCEND_RT_VISIBLE_DEVICES").empty();
  return {
      note("PACER_TORCH_NPU", "path of libtorch_npu.so"),
      note("PACER_PYTHON_LIBRARY", "path of libpython, for the wheel build of torch_npu"),
      note("ASCEND_HOME_PATH", "where CANN lies",
           value_of("ASCEND_HOME_PATH").empty() ? "source set_env.sh of the CANN toolkit" : ""),
      note("ASCEND_RT_VISIBLE_DEVICES", "devices that this process may use, ascending",
           empty_list ? "unset it: an empty list leaves no device" : ""),
      note("ASCEND_LAUNCH_BLOCKING", "1: every launch waits, errors appear where they arise",
           value_of("ASCEND_LAUNCH_BLOCKING") == "1" ? "unset it unless you look for an error" : ""),
      note("TASK_QUEUE_ENABLE", "host queue before the device: 0, 1 or 2"),
      note("PYTORCH_NPU_ALLOC_CONF", "how device memory is kept for reuse",
           value_of("PYTORCH_NPU_ALLOC_CONF").empty() ? "expandable_segments:True lessens fragmentation" : ""),
      note("MULTI_STREAM_MEMORY_REUSE", "when memory used by a collective is reused"),
      note("TORCH_NPU_FALLBACK_CPU_DISABLE",
           "1: an operator that the device lacks is an error and not run on the host"),
      note("HCCL_CONNECT_TIMEOUT", "seconds that ranks wait for each other"),
      note("HCCL_EXEC_TIMEOUT", "seconds that a collective may take"),
      note("HCCL_BUFFSIZE", "MB of each communicator's buffer"),
      note("HCCL_DETERMINISTIC", "true: reductions add in one order"),
  };
}

}  // namespace
}  // namespace pacer::npu

const pacer::device::Plugin* pacer_device_plugin() {
  using namespace pacer;
  static const device::Plugin plugin = [] {
    device::Plugin made;
    made.product = "npu";
    made.summary = "Ascend NPU through torch_npu";
    made.torch_name = "npu";
    made.torch_type = c10::DeviceType::PrivateUse1;
    made.load = npu::load;
    made.device_count = npu::device_count;
    made.visibility = npu::visibility;
    made.capabilities = npu::capabilities;
    made.operators = &npu::operators;
    made.advice = npu::advice;
    made.environment = npu::environment;
    made.collectives = "hccl";
    return made;
  }();
  return &plugin;
}
