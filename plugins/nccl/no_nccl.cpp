// In place of nccl.cpp where nccl.h or a CUDA build of LibTorch was not there at build time: says so when a group is
// asked for.
#include <stdexcept>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "pacer/device/plugin.h"

namespace {

c10::intrusive_ptr<c10d::Backend> make_backend(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                               std::chrono::milliseconds) {
  throw std::runtime_error(
      "this build has no NCCL: it was made without nccl.h or with a LibTorch without CUDA; build it again with "
      "-DPACER_NCCL_INCLUDE=FOLDER, the folder of nccl.h, and a CUDA build of LibTorch");
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
