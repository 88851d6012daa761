// The vendor's software is not on this machine.
#include "tests/fake_plugins/fake.h"

const pacer::device::Plugin* pacer_device_plugin() {
  using namespace pacer::device;
  static const Plugin plugin =
      fake::plugin("absent", [] { return Loaded{false, "libvendor.so is in none of the folders"}; });
  return &plugin;
}
