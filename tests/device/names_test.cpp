#include "pacer/device/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pacer/base/error.h"

namespace pacer::device {
namespace {

TEST(DeviceName, IsAProductAndAnIndexOfVisibleDevices) {
  EXPECT_EQ(parse_device_name("simnpu:1").product, "simnpu");
  EXPECT_EQ(parse_device_name("simnpu:1").index, 1);
  EXPECT_EQ(parse_device_name("npu").index, std::nullopt);
  EXPECT_EQ(parse_device_name("auto").product, kAuto);
  EXPECT_EQ(parse_device_name("another:12").index, 12) << "a plugin of somebody else";
}

TEST(DeviceName, RefusesOtherSpellingsAndListsTheAllowedOnes) {
  for (const char* spec : {"", ":1", "npu:", "npu:x", "npu:-1", "npu:1x", "npu:1:2", "cpu:0", "auto:1"}) {
    try {
      parse_device_name(spec);
      ADD_FAILURE() << spec << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage) << spec;
      EXPECT_THAT(error.what(), testing::HasSubstr("allowed are auto, cpu, cuda[:i], npu[:i], simnpu[:i]")) << spec;
    }
  }
}

TEST(DeviceName, AutoNeverPrefersASimulator) {
  for (const std::string& product : preferred_products()) EXPECT_NE(product, "simnpu");
  EXPECT_THAT(allowed_devices(), testing::Not(testing::HasSubstr("hccl")));
}

}  // namespace
}  // namespace pacer::device
