// What the back ends for tests of the loader have in common: they describe a device and bring none.
#pragma once

#include "pacer/device/plugin.h"

namespace pacer::device::fake {

inline int two_devices() { return 2; }
inline Capabilities nothing() { return {}; }

inline Plugin plugin(const char* product, Loaded (*load)()) {
  Plugin made;
  made.product = product;
  made.summary = "for tests";
  made.torch_name = "npu";
  made.torch_type = c10::DeviceType::PrivateUse1;
  made.load = load;
  made.device_count = two_devices;
  made.capabilities = nothing;
  return made;
}

}  // namespace pacer::device::fake
