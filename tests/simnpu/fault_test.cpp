// The host that touches device memory dies there and then, and is told which allocation it was.
#include <gtest/gtest.h>

#include <csignal>

#include <ATen/TensorOperators.h>
#include <ATen/ops/ones.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

class SimnpuFaultsDeathTest : public ::testing::Test {
 protected:
  // Each statement runs in a process of its own that is started anew: a fork would have no workers.
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

float read(const at::Tensor& tensor, int64_t index) {
  const volatile float* memory = tensor.const_data_ptr<float>();
  return memory[index];
}

TEST_F(SimnpuFaultsDeathTest, AReadOfTheHost) {
  EXPECT_EXIT(
      {
        const at::Tensor x = at::ones({100}, npu()).mul_(2);
        synchronize();  // not a race: device memory is never the host's
        read(x, 3);
      },
      ::testing::KilledBySignal(SIGSEGV),
      "the host reads device memory: byte 12 of allocation 1 \\(400 bytes on npu:0 stream 0, made by aten::empty.*last "
      "written by aten::mul");
}

TEST_F(SimnpuFaultsDeathTest, AWriteOfTheHostAndMemoryThatWasFreed) {
  EXPECT_EXIT(
      {
        float* memory = at::ones({100}, npu()).mutable_data_ptr<float>();
        *const_cast<volatile float*>(memory) = 1;
      },
      ::testing::KilledBySignal(SIGSEGV), "the host writes device memory: byte 0 of a block that was freed");
}

TEST_F(SimnpuFaultsDeathTest, OtherFaultsAreLeftAlone) {
  EXPECT_EXIT(
      {
        plugin();
        std::raise(SIGSEGV);
      },
      ::testing::KilledBySignal(SIGSEGV), "^$");
}

}  // namespace
}  // namespace pacer::simnpu
