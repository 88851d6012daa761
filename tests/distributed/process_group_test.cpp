#include "pacer/parallel/process_group.h"

#include <csignal>

#include <gmock/gmock.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/parallel/mesh.h"
#include "tests/distributed/ranks.h"

namespace pacer::parallel {
namespace {

using ::testing::HasSubstr;

std::vector<double> values(const at::Tensor& tensor) {
  const at::Tensor wide = tensor.to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

using V = std::vector<double>;

TEST(ProcessGroup, CollectivesOfThreeRanks) {
  run_ranks(3, [](World& world) {
    ProcessGroup& all = world.all();
    const auto me = static_cast<double>(world.rank());
    for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kLong}) {
      const auto filled = [&](int64_t n) { return at::full({n}, me + 1).to(dtype); };
      at::Tensor tensor = filled(2);
      all.broadcast(tensor, 1, "test").wait();
      EXPECT_EQ(values(tensor), (V{2, 2}));
      tensor = filled(2);
      all.sum(tensor, "test").wait();
      EXPECT_EQ(values(tensor), (V{6, 6}));
      at::Tensor gathered = at::zeros({6}, dtype);
      all.all_gather(gathered, filled(2), "test").wait();
      EXPECT_EQ(values(gathered), (V{1, 1, 2, 2, 3, 3}));
    }
    // Rank r gets r elements from everybody: also none at all.
    const at::Tensor sent = at::arange(3, at::kFloat) + 10 * me;
    at::Tensor received = at::zeros({3 * world.rank()});
    const std::vector<int64_t> got(3, world.rank());
    all.exchange(received, got, sent, {0, 1, 2}, "test").wait();
    if (world.rank() == 1) {
      EXPECT_EQ(values(received), (V{0, 10, 20}));
    }
    if (world.rank() == 2) {
      EXPECT_EQ(values(received), (V{1, 2, 11, 12, 21, 22}));
    }
    all.barrier("test");
  });
}

TEST(ProcessGroup, SeveralUnderWayAtOnceKeepTheirTensors) {
  run_ranks(2, [](World& world) {
    std::vector<Pending> pending;
    std::vector<at::Tensor> results;
    for (int i = 0; i < 20; ++i) {
      at::Tensor tensor = at::full({1000}, i + world.rank());
      results.push_back(tensor);
      pending.push_back(world.all().sum(tensor, "test"));
    }
    for (Pending& work : pending) work.wait();
    for (int i = 0; i < 20; ++i) EXPECT_EQ(results[static_cast<size_t>(i)][999].item<double>(), 2 * i + 1);
  });
}

TEST(ProcessGroup, AMeshHasItsOwnGroupOnEachAxis) {
  run_ranks(4, [](World& world) {
    const Mesh mesh{2, 2};
    const auto rows = world.group(mesh.group(world.rank(), Axis::shard), "shard");
    const auto columns = world.group(mesh.group(world.rank(), Axis::replicate), "replicate");
    at::Tensor row = at::full({1}, 1 << world.rank()), column = row.clone();
    rows->sum(row, "test").wait();
    columns->sum(column, "test").wait();
    EXPECT_EQ(row.item<double>(), world.rank() < 2 ? 3 : 12);
    EXPECT_EQ(column.item<double>(), world.rank() % 2 == 0 ? 5 : 10);
  });
}

TEST(ProcessGroup, CountsPayloadAsThePageOfBytesSays) {
  run_ranks(4, [](World& world) {
    ProcessGroup& all = world.all();
    at::Tensor tensor = at::zeros({1000}), gathered = at::zeros({4000});
    all.broadcast(tensor, 0, "publish").wait();
    all.sum(tensor, "norm").wait();
    all.sum(tensor, "norm").wait();
    all.all_gather(gathered, tensor, "acquire").wait();
    at::Tensor received = at::zeros({4 * (world.rank() == 2 ? 1000 : 0)});
    all.exchange(received, std::vector<int64_t>(4, received.numel() / 4), tensor, {0, 0, 1000, 0}, "reduce").wait();
    const auto& traffic = all.traffic();
    EXPECT_EQ(traffic.at("publish/broadcast").bytes, 4000 * 3 / 4.0);
    EXPECT_EQ(traffic.at("norm/all_reduce").bytes, 2 * 2 * 4000 * 3 / 4.0);
    EXPECT_EQ(traffic.at("norm/all_reduce").calls, 2);
    EXPECT_EQ(traffic.at("acquire/all_gather").bytes, 16000 * 3 / 4.0);
    EXPECT_EQ(traffic.at("reduce/exchange").bytes, world.rank() == 2 ? 0 : 4000);
    all.clear_traffic();
    EXPECT_TRUE(all.traffic().empty());
  });
}

TEST(ProcessGroup, OneRankNeedsNobody) {
  World world({}, {});
  at::Tensor tensor = at::full({2}, 3.0), gathered = at::zeros({2}), received = at::zeros({2});
  world.all().sum(tensor, "test").wait();
  world.all().broadcast(tensor, 0, "test").wait();
  world.all().all_gather(gathered, tensor, "test").wait();
  world.all().exchange(received, {2}, tensor, {2}, "test").wait();
  world.all().barrier("test");
  EXPECT_EQ(values(gathered), (V{3, 3}));
  EXPECT_EQ(values(received), (V{3, 3}));
  EXPECT_TRUE(world.all().traffic().empty());
  EXPECT_THROW((void)world.all().broadcast(tensor, 1, "test"), Error);
  EXPECT_THROW((void)world.all().exchange(received, {1}, tensor, {2}, "test"), Error);
}

TEST(ProcessGroup, ADeadRankIsAnErrorForTheOthersAtOnce) {
  const auto outcomes = outcomes_of_ranks(2, [](World& world) {
    at::Tensor tensor = at::zeros({10});
    world.all().sum(tensor, "reduce").wait();
    if (world.rank() == 1) ::raise(SIGKILL);
    world.all().sum(tensor, "reduce").wait();
  });
  EXPECT_EQ(outcomes[1].exit_code, 128 + SIGKILL);
  EXPECT_EQ(outcomes[0].exit_code, 2);
  EXPECT_THAT(outcomes[0].error, HasSubstr("reduce (all_reduce 2 of group world, rank 0): "));
  EXPECT_EQ(outcomes[0].error.find('\n'), std::string::npos) << "no native stack for a person";
}

TEST(World, AgreesOrSaysWhatDiffers) {
  const auto outcomes = outcomes_of_ranks(3, [](World& world) {
    world.require_same("plan mesh 1x3\n", "the plan");
    world.require_same(world.rank() == 2 ? "parameter a owner 1\n" : "parameter a owner 0\n", "the plan");
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcomes[2].error, HasSubstr("parameter a: rank 0 has owner 0; rank 2 has owner 1"));
  EXPECT_THAT(outcomes[1].error, HasSubstr("differs on rank 2"));
}

TEST(World, AFailureAnywhereIsAFailureEverywhere) {
  const auto outcomes = outcomes_of_ranks(3, [](World& world) {
    world.require_success_everywhere(true, "the first case");
    world.require_success_everywhere(world.rank() != 1, "the second case");
  });
  for (const RankOutcome& outcome : outcomes) EXPECT_THAT(outcome.error, HasSubstr("the second case failed on rank 1"));
}

}  // namespace
}  // namespace pacer::parallel
