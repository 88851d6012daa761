// Collectives of Ascend NPUs: torch_npu's process group on HCCL. The only file that sees torch_npu's headers.
#include <torch_npu/csrc/distributed/ProcessGroupHCCL.hpp>

#include "pacer/device/plugin.h"

namespace {

// HCCL cannot split a group: each group is made anew, on a store with a prefix of its own.
c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout) {
  auto options = c10d_npu::ProcessGroupHCCL::Options::create(/*is_high_priority_stream=*/false);
  options->opTimeout = timeout;
  return c10::make_intrusive<c10d_npu::ProcessGroupHCCL>(store, rank, size, options);
}

}  // namespace

const pacer::device::Plugin* pacer_device_plugin() {
  static const pacer::device::Plugin plugin = [] {
    pacer::device::Plugin made;
    made.collectives = "hccl";
    made.make_backend = make_backend;
    return made;
  }();
  return &plugin;
}
