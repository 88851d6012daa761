#include "pacer/device/kernels.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/device/plugin.h"

namespace pacer::device {
namespace {

TEST(KernelPaths, AreChosenForTheProcessAndByMemory) {
  const KernelPaths before = kernel_paths();
  use_kernel_paths({});
  EXPECT_TRUE(own_kernels(host_device()));
  EXPECT_TRUE(own_attention(host_device()));
  const c10::Device foreign(c10::DeviceType::PrivateUse1, 0);
  EXPECT_FALSE(own_kernels(foreign));
  EXPECT_FALSE(in_host_memory(foreign));
  use_kernel_paths({KernelPath::automatic, KernelPath::plain});
  EXPECT_TRUE(own_kernels(host_device()));
  EXPECT_FALSE(own_attention(host_device()));
  use_kernel_paths({KernelPath::plain, KernelPath::automatic});
  EXPECT_FALSE(own_kernels(host_device()));
  EXPECT_EQ(fused_operators(foreign).rms_norm, nullptr);
  use_kernel_paths(before);
}

TEST(KernelPaths, HaveTwoNames) {
  EXPECT_EQ(parse_kernel_path("auto", "kernel_impl"), KernelPath::automatic);
  EXPECT_EQ(parse_kernel_path("plain", "kernel_impl"), KernelPath::plain);
  try {
    parse_kernel_path("fast", "kernel_impl");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_STREQ(error.what(), "kernel_impl is \"fast\"; allowed are auto and plain");
  }
}

}  // namespace
}  // namespace pacer::device
