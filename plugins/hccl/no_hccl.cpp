// In place of hccl.cpp where torch_npu's headers were not there at build time: says so when a group is asked for.
#include <stdexcept>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "pacer/device/plugin.h"

namespace {

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                               std::chrono::milliseconds) {
  throw std::runtime_error(
      "this build has no HCCL: it was made without the headers of torch_npu; build it again with "
      "-DPACER_TORCH_NPU_DIR=FOLDER, the folder of the installed package torch_npu");
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
