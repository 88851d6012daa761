// The hazard checker: planted mistakes are named, correct programs raise no alarm. No case depends on timing: what is
// launched decides, not what runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

at::Tensor pinned(int64_t floats) { return at::empty({floats}, at::TensorOptions().pinned_memory(true)).fill_(1); }

float read(const at::Tensor& buffer) { return *static_cast<const volatile float*>(buffer.const_data_ptr()); }

class SimnpuHazards : public ::testing::Test {
 protected:
  void SetUp() override { x_ = at::ones({64, 64}, npu()), synchronize(); }
  // No hazard of one test may surface in another.
  void TearDown() override {
    message_of([] { synchronize(); });
  }

  template <class F>
  auto on_side(const F& f) const {
    const c10::StreamGuard on(side_);
    return f();
  }

  at::Tensor x_;
  c10::Stream side_ = side_stream();
};

TEST_F(SimnpuHazards, AMissingWaitIsFoundWithBothKernelsNames) {
  x_.add_(1);
  const std::string message = message_of([&] { on_side([&] { return at::mm(x_, x_); }); });
  EXPECT_THAT(message, AllOf(HasSubstr("npu hazard: aten::mm.out"), HasSubstr("reads"), HasSubstr("aten::add.out"),
                             HasSubstr("npu:0 stream 0 writes"), HasSubstr("16384 bytes")));
}

TEST_F(SimnpuHazards, AWriteAfterAnUnorderedReadIsOne) {
  on_side([&] { return x_.sum(); });
  EXPECT_THAT(message_of([&] { x_.zero_(); }), AllOf(HasSubstr("aten::zero_"), HasSubstr("aten::sum")));
}

TEST_F(SimnpuHazards, TwoReadsAreNone) {
  at::Tensor a = on_side([&] { return x_.sum(); });
  EXPECT_EQ(message_of([&] { x_.sum(); }), "");
}

TEST_F(SimnpuHazards, AnEventIsAnOrderAndAlsoThroughAThirdStream) {
  const c10::Stream third = side_stream();
  x_.add_(1);
  c10::Event event(npu().type()), next(npu().type());
  event.record(guard().getStream(npu()));
  event.block(third);
  next.record(third);
  next.block(side_);
  at::Tensor y;
  EXPECT_EQ(message_of([&] { y = on_side([&] { return x_ + 1; }); }), "");
  EXPECT_THAT(message_of([&] { x_.add_(1); }), HasSubstr("npu hazard")) << "an order in one direction only";
}

TEST_F(SimnpuHazards, AnEventThatWasRecordedTooEarlyIsNone) {
  c10::Event event(npu().type());
  event.record(guard().getStream(npu()));
  x_.add_(1);
  event.block(side_);
  EXPECT_THAT(message_of([&] { on_side([&] { return x_ + 1; }); }), HasSubstr("npu hazard"));
}

TEST_F(SimnpuHazards, TheHostThatWaitedIsAnOrder) {
  x_.add_(1);
  guard().getStream(npu()).synchronize();
  at::Tensor y;
  EXPECT_EQ(message_of([&] { y = on_side([&] { return x_ + 1; }); }), "");
}

TEST_F(SimnpuHazards, AMissingRecordStreamIsFoundWhenTheBlockIsReused) {
  at::Tensor block = at::full({1 << 20}, 3.0f, npu());
  synchronize();
  const at::Tensor sum = on_side([&] { return block.sum(); });
  block.reset();
  const std::string message = message_of([] { at::empty({1 << 20}, npu()); });
  EXPECT_THAT(message, AllOf(HasSubstr("the allocator's reuse of the block"), HasSubstr("aten::sum")));
}

TEST_F(SimnpuHazards, WithoutTheCheckerThatReaderReallyReadsPoison) {
  const SwitchScope off("hazard_checker", 0);
  at::Tensor block = at::full({1 << 20}, 3.0f, npu());
  synchronize();
  Held held(side_);
  const at::Tensor sum = on_side([&] { return block.sum(); });
  block.reset();
  const at::Tensor reused = at::empty({1 << 20}, npu());
  guard().getStream(npu()).synchronize();
  held.release();
  side_.synchronize();
  EXPECT_TRUE(std::isnan(sum.item<float>()));
}

TEST_F(SimnpuHazards, RecordStreamIsEnough) {
  at::Tensor block = at::full({1 << 20}, 3.0f, npu());
  synchronize();
  const at::Tensor sum = on_side([&] { return block.sum(); });
  block.record_stream(side_);
  block.reset();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(message_of([] { at::empty({1 << 20}, npu()); }), "");
  side_.synchronize();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(message_of([] { at::empty({1 << 20}, npu()); }), "");
}

TEST_F(SimnpuHazards, DisjointBucketsOfOnePackedBufferRaiseNoAlarm) {
  const at::Tensor packed = at::zeros({64, 192}, npu());
  synchronize();
  const at::Tensor left = packed.narrow(1, 0, 64), middle = packed.narrow(1, 64, 64), flat = packed.view({-1});
  EXPECT_EQ(message_of([&] {
              left.add_(1);
              on_side([&] { return middle.add_(2); });
            }),
            "")
      << "columns";
  EXPECT_THAT(message_of([&] { packed.narrow(1, 127, 2).add_(1); }), HasSubstr("npu hazard")) << "one column is shared";
  synchronize();
  EXPECT_EQ(message_of([&] {
              flat.narrow(0, 0, 5000).add_(1);
              on_side([&] { return flat.narrow(0, 5000, 5000).add_(1); });
            }),
            "")
      << "rows";
  EXPECT_THAT(message_of([&] { flat.narrow(0, 4999, 2).add_(1); }), HasSubstr("npu hazard"));
}

TEST_F(SimnpuHazards, OperatorsThatWaitForTheDeviceAreAccessesToo) {
  x_.add_(1);
  EXPECT_THAT(message_of([&] { on_side([&] { return x_.nonzero(); }); }), HasSubstr("aten::nonzero"));
  EXPECT_THAT(message_of([&] { on_side([&] { return x_[0][0].item(); }); }), HasSubstr("_local_scalar_dense"));
  EXPECT_THAT(message_of([&] { on_side([&] { return x_.cpu(); }); }), HasSubstr("copy from device to host"));
}

TEST_F(SimnpuHazards, TheHostReadsAPinnedBufferThatACopyStillWrites) {
  const at::Tensor buffer = pinned(4096);
  buffer.copy_(x_.view({-1}), /*non_blocking=*/true);
  read(buffer);
  const std::string message = message_of([] { synchronize(); });
  EXPECT_THAT(message, AllOf(HasSubstr("the host reads byte 0 of a pinned buffer of 16384 bytes"),
                             HasSubstr("copy from device to host")));
}

TEST_F(SimnpuHazards, TheHostWritesAPinnedBufferThatACopyStillReads) {
  const at::Tensor buffer = pinned(4096);
  const at::Tensor target = at::empty({4096}, npu());
  target.copy_(buffer, /*non_blocking=*/true);
  read(buffer);  // two reads are none
  EXPECT_EQ(message_of([&] { target.add_(1); }), "");
  buffer.mutable_data_ptr<float>()[100] = 2;
  EXPECT_THAT(message_of([&] { target.add_(1); }),
              AllOf(HasSubstr("the host writes byte 400 of a pinned buffer"), HasSubstr("copy from host to device")));
}

TEST_F(SimnpuHazards, AHostThatWaitedMayUseItsPinnedBuffer) {
  const at::Tensor buffer = pinned(4096);
  const at::Tensor target = at::empty({4096}, npu());
  c10::Event event(npu().type());
  target.copy_(buffer, /*non_blocking=*/true);
  event.record(guard().getStream(npu()));
  event.synchronize();
  buffer.fill_(9);
  buffer.copy_(target, /*non_blocking=*/false);
  EXPECT_EQ(buffer[7].item<float>(), 1.0f);
  EXPECT_EQ(message_of([] { synchronize(); }), "");
}

TEST_F(SimnpuHazards, OtherPagesOfAPinnedBufferAreFreeToUse) {
  const at::Tensor buffer = pinned(8192);
  x_.view({-1}).copy_(buffer.narrow(0, 0, 4096), /*non_blocking=*/true);
  buffer.narrow(0, 4096, 4096).fill_(4);
  EXPECT_EQ(message_of([] { synchronize(); }), "");
}

TEST_F(SimnpuHazards, APinnedBufferThatIsFreedUnderACopyIsFound) {
  at::Tensor buffer = pinned(4096);
  const at::Tensor view = at::from_blob(buffer.mutable_data_ptr<float>() + 16, {1000});  // nobody knows whose it is
  Held held(guard().getStream(npu()));
  const at::Tensor target = at::empty({1000}, npu());
  target.copy_(view, /*non_blocking=*/true);
  buffer.reset();
  EXPECT_THAT(message_of([&] { target.add_(1); }),
              AllOf(HasSubstr("the host frees pinned memory"), HasSubstr("copy from host to device")));
}

TEST_F(SimnpuHazards, APinnedTensorMayBeFreedWhileItIsCopied) {
  at::Tensor buffer = pinned(4096);
  const void* memory = buffer.const_data_ptr();
  Held held(guard().getStream(npu()));
  const at::Tensor target = at::empty({4096}, npu());
  target.copy_(buffer, /*non_blocking=*/true);
  buffer.reset();
  const at::Tensor other = pinned(4096);
  EXPECT_NE(other.const_data_ptr(), memory) << "not before the copy is over";
  held.release();
  synchronize();
  EXPECT_EQ(target[4095].item<float>(), 1.0f);
  EXPECT_EQ(pinned(4096).const_data_ptr(), memory);
}

TEST_F(SimnpuHazards, CopiesBetweenDevicesNeedNoWait) {
  at::Tensor there;
  {
    const at::Tensor temporary = x_ + 41;
    there = temporary.to(npu(1), /*non_blocking=*/true);
  }
  const at::Tensor reuse = at::zeros({64, 64}, npu());
  EXPECT_TRUE(same_bits(there, at::full({64, 64}, 42.0f)));
}

}  // namespace
}  // namespace pacer::simnpu
