#include "apps/pacer/device_options.h"

#include "pacer/device/kernels.h"
#include "pacer/device/names.h"

namespace pacer::cli {

void DeviceOptions::add_to(CLI::App& command) {
  command.add_option("--device", device, "Where to compute: " + device::allowed_devices() + " (docs/devices.md)")
      ->capture_default_str();
  const CLI::IsMember paths({"auto", "plain"});
  command
      .add_option("--kernel-impl", kernel_impl, "auto: own kernels where they apply; plain: LibTorch's operators only")
      ->check(paths)
      ->capture_default_str();
  command.add_option("--attention-impl", attention_impl, "The same for attention")->check(paths)->capture_default_str();
}

void DeviceOptions::use_kernel_paths() const {
  device::use_kernel_paths({device::parse_kernel_path(kernel_impl, "--kernel-impl"),
                            device::parse_kernel_path(attention_impl, "--attention-impl")});
}

device::Runtime DeviceOptions::open() const {
  use_kernel_paths();
  return device::Runtime::open(device);
}

}  // namespace pacer::cli
