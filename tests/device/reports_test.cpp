// Entries of docs/known_failures.md about lists of visible devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "pacer/base/error.h"
#include "pacer/device/back_ends.h"
#include "pacer/device/visible_devices.h"

namespace pacer::device {
namespace {

TEST(DeviceReports, Report87EveryDeviceThatAListNamesIsThereOrTheListIsRefused) {
  EXPECT_EQ(listed_devices("0,1,3,4"), 4);
  EXPECT_EQ(listed_devices("0,1,-1,2"), 2) << "-1 ends a list on purpose";
  EXPECT_EQ(listed_devices(""), 0);
  EXPECT_EQ(listed_devices("a"), 1);
  EXPECT_EQ(listed_devices("0,1,"), 2);
  // In a process of its own: a foreign back end stays. It has two devices.
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto checks = [] {
    ::setenv("PACER_PLUGIN_DIR", PACER_FAKE_PLUGINS, 1);
    const auto found = [](const char* value) -> std::string {
      ::setenv("PACER_TEST_VISIBLE", value, 1);
      try {
        const Availability there = examine("present");
        return there.there() ? std::to_string(there.devices.size()) : there.note;
      } catch (const Error& error) {
        return error.what();
      }
    };
    const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
    if (found("0,1") != "2" || found("1") != "1") std::exit(1);
    if (!has(found(""), "PACER_TEST_VISIBLE=\"\" leaves none")) std::exit(2);
    if (!has(found("a"), "PACER_TEST_VISIBLE=\"a\" leaves none")) std::exit(3);
    if (!has(found("0,1,3,4"), "PACER_TEST_VISIBLE=\"0,1,3,4\" names 4 devices, and 2 of them are there")) std::exit(4);
    if (!has(found("0,7"), "names 2 devices, and 1 of them are there")) std::exit(5);
    std::exit(0);
  };
  EXPECT_EXIT(checks(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace pacer::device
