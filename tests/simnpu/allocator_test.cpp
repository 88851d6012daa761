// Device memory goes back to its stream at once, poisoned; the limit is a limit; statistics are kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using ::testing::HasSubstr;

c10::DeviceAllocator& allocator() { return *c10::getDeviceAllocator(npu().type()); }
int64_t allocated() { return allocator().getDeviceStats(0).allocated_bytes[0].current; }
int64_t reserved() { return allocator().getDeviceStats(0).reserved_bytes[0].current; }

constexpr int64_t kMegabyte = int64_t{1} << 18;  // floats

TEST(SimnpuAllocator, AFreedBlockGoesBackToItsStreamBeforeItsWorkIsOver) {
  const c10::Stream stream = guard().getStream(npu());
  at::Tensor first = at::empty({3 * kMegabyte}, npu());
  const void* memory = first.const_data_ptr();
  synchronize();
  Held held(stream);
  first.fill_(2);
  const at::Tensor sum = first.sum();
  first.reset();
  const at::Tensor second = at::empty({3 * kMegabyte}, npu());
  EXPECT_EQ(second.const_data_ptr(), memory) << "no wait was needed";
  second.fill_(5);
  held.release();
  EXPECT_EQ(sum.item<float>(), 6.0f * kMegabyte) << "the stream keeps the order";
  EXPECT_EQ(second[17].item<float>(), 5.0f);
}

TEST(SimnpuAllocator, AnotherStreamNeverGetsIt) {
  at::Tensor first = at::empty({3 * kMegabyte}, npu());
  const void* memory = first.const_data_ptr();
  first.reset();
  const c10::StreamGuard on(side_stream());
  EXPECT_NE(at::empty({3 * kMegabyte}, npu()).const_data_ptr(), memory);
}

TEST(SimnpuAllocator, NewMemoryIsNaNAlsoWhenItWasUsedBefore) {
  at::Tensor first = at::full({1000}, 1.0f, npu());
  first.reset();
  EXPECT_TRUE(at::isnan(at::empty({1000}, npu())).all().item<bool>());
  const SwitchScope off("poison", 0);
  at::Tensor again = at::full({1000}, 1.0f, npu());
  again.reset();
  EXPECT_FALSE(at::isnan(at::empty({1000}, npu())).any().item<bool>());
}

TEST(SimnpuAllocator, RecordStreamKeepsTheBlockUntilThatStreamIsDone) {
  const c10::Stream side = side_stream();
  at::Tensor block = at::full({3 * kMegabyte}, 7.0f, npu());
  const void* memory = block.const_data_ptr();
  synchronize();
  Held held(side);
  at::Tensor sum;
  {
    const c10::StreamGuard on(side);
    sum = block.sum();
  }
  block.record_stream(side);
  block.reset();
  at::Tensor other = at::zeros({3 * kMegabyte}, npu());
  EXPECT_NE(other.const_data_ptr(), memory);
  held.release();
  side.synchronize();
  EXPECT_EQ(sum.item<float>(), 21.0f * kMegabyte);
  const at::Tensor third = at::empty({3 * kMegabyte}, npu());
  EXPECT_EQ(third.const_data_ptr(), memory) << "now it is free";
}

TEST(SimnpuAllocator, SplitsAndJoinsBlocks) {
  allocator().emptyCache();
  const int64_t before = reserved();
  std::vector<at::Tensor> parts;
  for (int i = 0; i < 6; ++i) parts.push_back(at::empty({1000}, npu()));
  const int64_t with_parts = reserved();
  EXPECT_GT(with_parts, before);
  const void* first = parts[0].const_data_ptr();
  parts.clear();
  const at::Tensor whole = at::empty({400000}, npu());
  EXPECT_EQ(whole.const_data_ptr(), first) << "the parts are one block again";
  for (int i = 0; i < 6; ++i) parts.push_back(at::empty({1000}, npu()));
  EXPECT_EQ(reserved(), with_parts) << "small parts share the segment's rest";
}

TEST(SimnpuAllocator, CountsBytesAndPeaks) {
  const int64_t before = allocated();
  allocator().resetPeakStats(0);
  {
    const at::Tensor a = at::empty({kMegabyte}, npu()), b = at::empty({2 * kMegabyte}, npu());
    EXPECT_EQ(allocated() - before, 3 << 20);
  }
  EXPECT_EQ(allocated(), before);
  EXPECT_EQ(allocator().getDeviceStats(0).allocated_bytes[0].peak - before, 3 << 20);
  allocator().resetPeakStats(0);
  EXPECT_EQ(allocator().getDeviceStats(0).allocated_bytes[0].peak, before);
}

TEST(SimnpuAllocator, TheLimitIsALimitAndCachedMemoryIsGivenBackFirst) {
  allocator().emptyCache();
  const auto [free, total] = allocator().getMemoryInfo(0);
  EXPECT_EQ(total, size_t{512} << 20);
  const auto floats = static_cast<int64_t>(free / 4);
  at::Tensor large = at::empty({floats / 8 * 5}, npu());
  const std::string message = message_of([&] { at::empty({floats / 2}, npu()); });
  EXPECT_THAT(message, HasSubstr("NPU out of memory. Tried to allocate"));
  EXPECT_THAT(message, HasSubstr("512 MiB total capacity"));
  EXPECT_EQ(large.fill_(1)[5].item<float>(), 1.0f) << "what was there still is";
  large.reset();
  EXPECT_EQ(message_of([&] { large = at::empty({floats / 16 * 15}, npu()); }), "") << "the cache makes room";
  large.reset();
  allocator().emptyCache();
  EXPECT_EQ(allocator().getMemoryInfo(0).first, free);
}

TEST(SimnpuAllocator, AnOutOfMemoryErrorIsOneForLibTorchToo) {
  EXPECT_THROW(at::empty({int64_t{1} << 30}, npu()), c10::OutOfMemoryError);
}

TEST(SimnpuAllocator, DevicesHaveTheirOwnMemory) {
  const int64_t before = allocator().getDeviceStats(1).allocated_bytes[0].current;
  const at::Tensor there = at::empty({kMegabyte}, npu(1));
  EXPECT_EQ(allocator().getDeviceStats(1).allocated_bytes[0].current - before, 1 << 20);
  EXPECT_THAT(message_of([&] { there.record_stream(side_stream(0)); }), HasSubstr("memory of npu:1"));
}

}  // namespace
}  // namespace pacer::simnpu
