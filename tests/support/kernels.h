// For tests of what only Pacer's own kernels do: they hold whatever PACER_KERNEL_IMPL says of the rest.
#pragma once

#include "pacer/device/kernels.h"

namespace pacer::test {

class OwnKernels {
 public:
  OwnKernels() { device::use_kernel_paths({}); }
  ~OwnKernels() { device::use_kernel_paths(before_); }
  OwnKernels(const OwnKernels&) = delete;
  OwnKernels& operator=(const OwnKernels&) = delete;

 private:
  device::KernelPaths before_ = device::kernel_paths();
};

}  // namespace pacer::test
