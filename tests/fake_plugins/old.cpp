// Built against another version of the interface.
#include "tests/fake_plugins/fake.h"

const pacer::device::Plugin* pacer_device_plugin() {
  using namespace pacer::device;
  static const Plugin plugin = [] {
    Plugin made = fake::plugin("old", [] { return Loaded{true, ""}; });
    made.interface_version = kPluginInterface + 1;
    return made;
  }();
  return &plugin;
}
