// What streams, memory and generators mean on the host; tests/conformance runs the same calls on every device.
#include "pacer/device/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/core/StreamGuard.h>

#include "pacer/base/error.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/generators.h"

namespace pacer::device {
namespace {

class OnTheHost : public testing::Test {
 protected:
  Runtime runtime_ = Runtime::open("cpu");
};

TEST_F(OnTheHost, StreamsAndEventsAreDefinedAndDoNothing) {
  const c10::Stream stream = new_stream(runtime_);
  EXPECT_EQ(stream, current_stream(runtime_));
  const c10::StreamGuard guard(stream);
  Event event(runtime_);
  EXPECT_TRUE(event.is_done());
  event.record(stream);
  EXPECT_TRUE(event.is_done());
  EXPECT_TRUE(is_done(stream));
  wait("test.event", stream, event);
  wait("test.stream", stream, current_stream(runtime_));
  wait("test.host_event", event);
  wait("test.host_stream", stream);
  record_stream("test.record", at::arange(3), stream);
  runtime_.bind_thread();
  runtime_.synchronize();
  EXPECT_THROW(Event(runtime_, /*timed=*/true), Error);
}

TEST_F(OnTheHost, SitesAreKnownOnceReached) {
  wait("test.reached", current_stream(runtime_));
  EXPECT_THAT(reached_sites(), testing::Contains("test.reached"));
}

TEST_F(OnTheHost, MemoryIsTheProcesssOwn) {
  EXPECT_EQ(memory_use(runtime_).now_bytes, 0u);
  reset_peak_memory(runtime_);
  release_cached_memory(runtime_);
  const at::Tensor staged = pinned_empty(runtime_, {2, 3}, at::kFloat);
  EXPECT_EQ(staged.sizes(), at::IntArrayRef({2, 3}));
  EXPECT_EQ(to_device(runtime_, staged).const_data_ptr(), staged.const_data_ptr());
  EXPECT_EQ(to_host(staged).const_data_ptr(), staged.const_data_ptr());
}

TEST_F(OnTheHost, GeneratorsGoOnWhereTheyWereSaved) {
  seed_generators(runtime_, 7);
  at::rand({5});
  const GeneratorState state = generator_state(runtime_);
  EXPECT_EQ(state.product, "cpu");
  const at::Tensor first = at::rand({5});
  EXPECT_TRUE(restore_generator(runtime_, state, 0));
  EXPECT_TRUE(at::equal(first, at::rand({5})));
}

TEST_F(OnTheHost, AStateOfAnotherDeviceMeansANewBeginningFromTheSeed) {
  GeneratorState state = generator_state(runtime_);
  state.product = "npu";
  EXPECT_FALSE(restore_generator(runtime_, state, 11));
  const at::Tensor first = at::rand({5});
  EXPECT_FALSE(restore_generator(runtime_, {}, 11)) << "a checkpoint without a state";
  EXPECT_TRUE(at::equal(first, at::rand({5})));
}

}  // namespace
}  // namespace pacer::device
