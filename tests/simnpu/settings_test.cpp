// What the environment tells the simulator. It is read once, so every case is a process of its own.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceType.h>

#include "pacer/base/error.h"
#include "pacer/device/plugin_loader.h"
#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

class SimnpuSettingsDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

// Ends the process with the message of what f throws, or with "fine".
template <class F>
[[noreturn]] void tell(const F& f) {
  try {
    f();
    std::fputs("fine\n", stderr);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::_Exit(0);
}

const device::Plugin& load(const char* variable, const char* value) {
  setenv(variable, value, 1);
  const device::Plugin* opened = device::open_plugin("simnpu");
  device::load_plugin(*opened);
  return *opened;
}

void expect(bool holds) {
  if (!holds) throw Error(ErrorKind::bug, "not as expected");
}

TEST_F(SimnpuSettingsDeathTest, DevicesAndMemory) {
  EXPECT_EXIT(tell([] {
                const device::Plugin& plugin = load("SIMNPU_DEVICE_COUNT", "3");
                expect(plugin.device_count() == 3);
              }),
              ::testing::ExitedWithCode(0), "fine");
  EXPECT_EXIT(tell([] {
                const device::Plugin& plugin = load("SIMNPU_MEMORY_MB", "48");
                expect(c10::getDeviceAllocator(plugin.torch_type)->getMemoryInfo(0).second == size_t{48} << 20);
              }),
              ::testing::ExitedWithCode(0), "fine");
  EXPECT_EXIT(tell([] { load("SIMNPU_DEVICE_COUNT", "many"); }), ::testing::ExitedWithCode(0),
              "SIMNPU_DEVICE_COUNT: 'many' is no whole number from 0 to 16");
}

TEST_F(SimnpuSettingsDeathTest, Switches) {
  EXPECT_EXIT(tell([] {
                load("SIMNPU_SWITCHES", "poison=0,delay_seed=7");
                expect(device::open_plugin("simnpu")->switches().at(1).value == 0);
                expect(device::open_plugin("simnpu")->switches().at(2).value == 7);
              }),
              ::testing::ExitedWithCode(0), "fine");
  EXPECT_EXIT(tell([] { load("SIMNPU_SWITCHES", "poison"); }), ::testing::ExitedWithCode(0),
              "'poison' is not name=value");
  EXPECT_EXIT(tell([] { load("SIMNPU_SWITCHES", "poisson=1"); }), ::testing::ExitedWithCode(0),
              "there is no switch 'poisson'");
}

TEST_F(SimnpuSettingsDeathTest, OpeningTheLibraryRegistersNothing) {
  EXPECT_EXIT(tell([] {
                expect(device::open_plugin("simnpu")->environment().size() == 4);
                expect(c10::DeviceTypeName(c10::DeviceType::PrivateUse1, true) == "privateuseone");
                device::load_plugin(*device::open_plugin("simnpu"));
                expect(c10::DeviceTypeName(c10::DeviceType::PrivateUse1, true) == "npu");
              }),
              ::testing::ExitedWithCode(0), "fine");
}

}  // namespace
}  // namespace pacer::simnpu
