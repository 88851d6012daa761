// Work is really asynchronous, events have versions, errors surface at the call that waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using ::testing::HasSubstr;

TEST(SimnpuStreams, ALaunchReturnsBeforeTheKernelRuns) {
  const at::Tensor a = at::ones({64, 64}, npu());
  synchronize();
  const c10::Stream stream = guard().getStream(npu());
  at::Tensor product;
  {
    Held held(stream);
    product = at::mm(a, a);
    product.add_(1);
    EXPECT_FALSE(stream.query());
  }
  synchronize();
  EXPECT_TRUE(stream.query());
  EXPECT_TRUE(same_bits(product, at::full({64, 64}, 65.0f)));
}

TEST(SimnpuStreams, AWaitTakesTheEventAsItWasThen) {
  const c10::Stream first = side_stream(), second = side_stream();
  Held hold_first(first);
  c10::Event event(npu().type());
  event.record(first);
  event.block(second);  // waits for the first recording only
  hold_first.release();
  second.synchronize();
  Held again(first);
  event.record(first);  // a new version that cannot complete
  EXPECT_FALSE(event.query());
  second.synchronize();  // would hang if the wait had moved to the new version
  EXPECT_TRUE(second.query());
  again.release();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(SimnpuStreams, AnEventThatWasNeverRecordedIsDone) {
  c10::Event event(npu().type());
  EXPECT_TRUE(event.query());
  event.block(side_stream());
}

TEST(SimnpuStreams, WaitingOrdersTheStreamAndNotTheHost) {
  const at::Tensor x = at::zeros({8}, npu());
  synchronize();
  const c10::Stream producer = side_stream(), consumer = side_stream();
  Held held(producer);
  c10::Event event(npu().type());
  at::Tensor copy;
  {
    const c10::StreamGuard on(producer);
    x.add_(3);
    event.record(producer);
  }
  {
    const c10::StreamGuard on(consumer);
    event.block(consumer);  // returns although the producer is held
    copy = x + 1;
  }
  EXPECT_FALSE(consumer.query());
  held.release();
  consumer.synchronize();
  EXPECT_TRUE(same_bits(copy, at::full({8}, 4.0f)));
}

TEST(SimnpuStreams, AKernelsErrorSurfacesAtTheNextSynchronisingCallWithItsName) {
  const at::Tensor table = at::ones({4, 2}, npu()), index = at::tensor({1, 9}, at::kLong).to(npu());
  at::Tensor rows;
  EXPECT_EQ(message_of([&] { rows = at::index_select(table, 0, index); }), "") << "the launch itself succeeds";
  const std::string message = message_of([] { synchronize(); });
  EXPECT_THAT(message, HasSubstr("aten::index_select"));
  EXPECT_THAT(message, HasSubstr("npu:0 stream 0"));
  EXPECT_THAT(message, HasSubstr("index out of range"));
  EXPECT_EQ(message_of([] { synchronize(); }), "") << "told once";
  EXPECT_TRUE(same_bits(table + 1, at::full({4, 2}, 2.0f))) << "the device goes on";
}

TEST(SimnpuStreams, AnErrorOfOneStreamIsToldByAnyWaitOfItsDeviceOnly) {
  const at::Tensor table = at::ones({4, 2}, npu()), index = at::tensor({-30}, at::kLong).to(npu());
  const c10::Stream side = side_stream();
  synchronize();
  {
    const c10::StreamGuard on(side);
    at::index_select(table, 0, index);
  }
  while (!side.query()) {
  }
  EXPECT_EQ(message_of([] { synchronize(1); }), "");
  EXPECT_THAT(message_of([&] { table.sum().item(); }), HasSubstr("aten::index_select"));
}

TEST(SimnpuStreams, ShapeErrorsAreToldAtTheCall) {
  const at::Tensor a = at::ones({2, 3}, npu());
  EXPECT_THAT(message_of([&] { at::mm(a, a); }), HasSubstr("mat1 and mat2 shapes cannot be multiplied"));
  EXPECT_THAT(message_of([&] { a.add_(at::ones({4}, npu())); }), HasSubstr("The size of tensor a"));
}

TEST(SimnpuStreams, DevicesAndStreamsArePerThreadAndChecked) {
  EXPECT_EQ(guard().deviceCount(), 2);
  EXPECT_THAT(message_of([] { at::zeros({1}, npu(2)); }), HasSubstr("invalid device index 2: there are 2 devices"));
  const c10::Stream side = side_stream(1);
  {
    const c10::StreamGuard on(side);
    EXPECT_EQ(guard().getStream(npu(1)), side);
    EXPECT_EQ(guard().getDevice(), npu(1));
  }
  EXPECT_NE(guard().getStream(npu(1)), side);
  EXPECT_EQ(guard().getDevice(), npu(0));
}

TEST(SimnpuStreams, ASeedDelaysKernelsAndChangesNoResult) {
  const SwitchScope seed("delay_seed", 17);
  const at::Tensor x = at::ones({16}, npu());
  for (int i = 0; i < 50; ++i) x.add_(1);
  EXPECT_TRUE(same_bits(x, at::full({16}, 51.0f)));
}

}  // namespace
}  // namespace pacer::simnpu
