// Collectives of CUDA devices: LibTorch's process group on NCCL.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "pacer/device/plugin.h"

namespace {

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                               std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/false);
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace

const pacer::device::Plugin* pacer_device_plugin() {
  static const pacer::device::Plugin plugin = [] {
    pacer::device::Plugin made;
    made.collectives = "nccl";
    made.make_backend = make_backend;
    return made;
  }();
  return &plugin;
}
