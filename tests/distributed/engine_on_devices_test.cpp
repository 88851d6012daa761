// The engine and the groups of ranks that have a device each: the simulated NPU with its rules and its hazard checker.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/streams.h"
#include "pacer/parallel/engine.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/small_model.h"
#include "tests/support/tensors.h"

namespace pacer::parallel {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

const RankSetup kDevices{.device = "simnpu"};

// What the host holds travels by a copy; float64, which devices do not add, as bits.
TEST(GroupOnDevices, TakesTensorsOfTheDeviceAndOfTheHost) {
  for (const bool through_host : {false, true}) {
    const auto body = [&](World& world) {
      EXPECT_EQ(device::in_host_memory(world.place()), through_host);
      const c10::Device own = device::current_stream(*world.runtime()).device();
      ASSERT_FALSE(device::in_host_memory(own));
      const auto me = static_cast<double>(world.rank());
      for (const c10::Device device : {own, device::host_device()}) {
        at::Tensor sum = at::full({3}, me + 1, at::TensorOptions().device(device));
        world.all().sum(sum, "test").wait();
        EXPECT_EQ(sum[0].item<float>(), 3.0f);
        at::Tensor counts = at::full({2}, world.rank() + 1, at::TensorOptions().dtype(at::kLong).device(device));
        world.all().sum(counts, "test").wait();
        EXPECT_EQ(counts[1].item<int64_t>(), 3);
        at::Tensor all = at::zeros({4}, sum.options());
        world.all().all_gather(all, at::full({2}, me, sum.options()), "test").wait();
        EXPECT_EQ(all[3].item<float>(), 1.0f);
        // One rank sends nothing, the other receives nothing.
        at::Tensor received = at::zeros({world.rank() == 0 ? 0 : 2}, sum.options());
        at::Tensor sent = at::full({world.rank() == 0 ? 2 : 0}, 7.0, sum.options());
        world.all().exchange(received, {received.numel(), 0}, sent, {0, sent.numel()}, "test").wait();
        if (world.rank() == 1) {
          EXPECT_EQ(received[1].item<float>(), 7.0f);
        }
      }
      at::Tensor exact = at::zeros({2}, at::kDouble);
      exact[world.rank()] = 1.0 / 3 + me;
      world.all().sum_exact(exact, "test").wait();
      EXPECT_EQ(exact[0].item<double>(), 1.0 / 3);
      EXPECT_EQ(exact[1].item<double>(), 1.0 / 3 + 1);
      world.all().barrier("test");
    };
    run_ranks(2, body, {.device = "simnpu", .through_host = through_host});
  }
}

void expect_as_alone_on_devices(const Mesh& mesh, const SmallModelOptions& model, const EngineOptions& options,
                                const RankSetup& setup = kDevices) {
  run_ranks(
      mesh.size(),
      [&](World& world) {
        SmallModelOptions there = model;
        there.device = world.place();
        const Trail reference = alone(there, mesh.data_size() * options.reduction.micro_batches, 2, options);
        expect_same(train_small(world, options, there, 2), reference);
      },
      setup);
}

// Chunks that are empty, a replicated parameter, segments that run twice and that are computed again, weights that come
// and go: nothing is launched on tensors without elements, no f64, and no two accesses without an order.
TEST(EngineOnDevices, EveryPlacementHasTheBitsOfOneProcess) {
  EngineOptions freed = small_options({1, 4}, 1, true);
  freed.free_weights = true;
  freed.unshard = Unshard::all_gather;
  expect_as_alone_on_devices({1, 4}, {}, freed);
  EngineOptions accumulated = small_options({2, 2}, 3, true);
  accumulated.reduction.accumulation = Accumulation::no_sync;
  expect_as_alone_on_devices({2, 2}, {.recompute = true, .twice = true}, accumulated);
  EngineOptions gated = small_options({2, 1}, 2, true);
  gated.reduction.accumulation = Accumulation::replicate_gate;
  gated.overlap = false;
  expect_as_alone_on_devices({2, 1}, {.use_extra = false}, gated);
}

// One machine with two devices and one with a single one: ranks are bound by what their machine says.
TEST(EngineOnDevices, MachinesMayHaveDifferentNumbersOfRanks) {
  const RankSetup machines{.environment =
                               [](LaunchEnvironment& environment) {
                                 const bool second = environment.rank == 2;
                                 environment.local_rank = second ? 0 : environment.rank;
                                 environment.local_world = second ? 1 : 2;
                               },
                           .device = "simnpu"};
  expect_as_alone_on_devices({3, 1}, {}, small_options({3, 1}, 1, true), machines);
  run_ranks(3, [](World& world) { EXPECT_EQ(world.place().index(), world.rank() % 2); }, machines);
}

// Rank 2 of three has no device: it says so before it waits for anybody, and never reaches the body.
TEST(EngineOnDevices, TooFewDevicesAreSaidBeforeRanksMeet) {
  const auto outcomes = outcomes_of_ranks(3, [](World&) { ADD_FAILURE() << "the ranks met"; }, std::chrono::seconds(60),
                                          std::chrono::seconds(120), {.device = "simnpu", .devices = 2});
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("3 ranks on this machine"), HasSubstr("2 visible simnpu devices")));
    EXPECT_THAT(outcome.hint, HasSubstr("SIMNPU_DEVICE_COUNT"));
  }
}

TEST(EngineOnDevices, AMissingWaitIsFound) {
  const auto outcomes = outcomes_of_ranks(
      2,
      [](World& world) {
        device::disable_sites({"process_group.pending"});
        SmallModelOptions model;
        model.device = world.place();
        train_small(world, small_options({2, 1}, 1, true), model, 1);
      },
      std::chrono::seconds(60), std::chrono::seconds(120), kDevices);
  // The rank that comes first ends by it; the other may lose its peer before it comes to the place itself.
  const auto found = [](const RankOutcome& outcome) { return outcome.error.find("npu hazard") != std::string::npos; };
  EXPECT_TRUE(std::any_of(outcomes.begin(), outcomes.end(), found));
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error, AnyOf(HasSubstr("npu hazard"), HasSubstr("closed the connection")));
  }
}

}  // namespace
}  // namespace pacer::parallel
