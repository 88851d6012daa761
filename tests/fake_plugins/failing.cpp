// The vendor's software is there and does not work.
#include <stdexcept>

#include "tests/fake_plugins/fake.h"

const pacer::device::Plugin* pacer_device_plugin() {
  using namespace pacer::device;
  static const Plugin plugin = fake::plugin(
      "failing", []() -> Loaded { throw std::runtime_error("libvendor.so: undefined symbol: vendor_open"); });
  return &plugin;
}
