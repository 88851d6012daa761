// Two devices, of which the vendor's variable may hide some.
#include "tests/fake_plugins/fake.h"

const pacer::device::Plugin* pacer_device_plugin() {
  using namespace pacer::device;
  static const Plugin plugin = [] {
    Plugin made = fake::plugin("present", [] { return Loaded{true, "version 1"}; });
    made.visibility = [] { return Visibility{VisibilityRule::ascending, "PACER_TEST_VISIBLE", false}; };
    return made;
  }();
  return &plugin;
}
