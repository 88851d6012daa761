// Collectives of the simulated NPU. Ranks are back ends in this process, one device each, because calls return before
// their peers arrive; processes_test.cpp has ranks that are processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using Work = c10::intrusive_ptr<c10d::Work>;

class SimHccl : public ::testing::Test {
 protected:
  static constexpr int kRanks = 2;

  void SetUp() override { make(kRanks, milliseconds(60000)); }
  void TearDown() override {
    for (const auto& rank : ranks_) rank->abort();
    for (int i = 0; i < 2; ++i) message_of([&] { synchronize(i); });
  }

  void make(int size, milliseconds timeout) {
    const auto store = c10::make_intrusive<c10d::PrefixStore>("group", c10::make_intrusive<c10d::HashStore>());
    ranks_.clear();
    for (int rank = 0; rank < size; ++rank) {
      const c10::DeviceGuard on(npu(rank));
      ranks_.push_back(plugin().make_backend(store, rank, size, timeout));
    }
  }

  // f(rank, its back end) for every rank; waits for the works and for the devices.
  template <class F>
  void all(const F& f) {
    std::vector<Work> works;
    for (int rank = 0; rank < kRanks; ++rank) works.push_back(f(rank, *ranks_[static_cast<size_t>(rank)]));
    for (const Work& work : works) work->wait();
    for (int rank = 0; rank < kRanks; ++rank) synchronize(rank);
    for (const Work& work : works) EXPECT_TRUE(work->isSuccess());
  }

  static at::Tensor values(int rank, std::vector<int64_t> sizes, at::ScalarType dtype = at::kFloat) {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return (at::arange(count).view(sizes) * (rank + 1) % 31).to(dtype).to(npu(rank));
  }

  std::vector<c10::intrusive_ptr<c10d::Backend>> ranks_;
};

TEST_F(SimHccl, ReducesEveryDtypeThatTheDeviceTakes) {
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort, at::kChar}) {
    for (const auto op : {c10d::ReduceOp::SUM, c10d::ReduceOp::MAX, c10d::ReduceOp::MIN}) {
      Tensors x = {values(0, {1001}, dtype), values(1, {1001}, dtype)};
      const at::Tensor a = x[0].cpu(), b = x[1].cpu();
      all([&](int rank, c10d::Backend& backend) {
        Tensors own = {x[static_cast<size_t>(rank)]};
        c10d::AllreduceOptions options;
        options.reduceOp = op;
        return backend.allreduce(own, options);
      });
      const at::Tensor expected = op == c10d::ReduceOp::SUM   ? a + b
                                  : op == c10d::ReduceOp::MAX ? a.maximum(b)
                                                              : a.minimum(b);
      for (const at::Tensor& result : x) EXPECT_TRUE(same_bits(result, expected)) << toString(dtype);
    }
  }
}

TEST_F(SimHccl, ReducesToOneRankAndScattersSums) {
  Tensors x = {values(0, {6}), values(1, {6})}, parts = {at::empty({3}, npu(0)), at::empty({3}, npu(1))};
  const at::Tensor a = x[0].cpu(), b = x[1].cpu();
  all([&](int rank, c10d::Backend& backend) {
    return backend._reduce_scatter_base(parts[static_cast<size_t>(rank)], x[static_cast<size_t>(rank)], {});
  });
  EXPECT_TRUE(same_bits(at::cat({parts[0].cpu(), parts[1].cpu()}), a + b));
  all([&](int rank, c10d::Backend& backend) {
    Tensors own = {x[static_cast<size_t>(rank)]};
    c10d::ReduceOptions options;
    options.rootRank = 1;
    options.reduceOp = c10d::ReduceOp::AVG;
    return backend.reduce(own, options);
  });
  EXPECT_TRUE(same_bits(x[0], a)) << "only the root's tensor changes";
  EXPECT_TRUE(same_bits(x[1], (a + b) / 2));
}

TEST_F(SimHccl, MovesAnyDtype) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kByte, at::kBool}) {
    Tensors x = {values(0, {4, 2}, dtype), values(1, {4, 2}, dtype)};
    Tensors gathered = {at::empty({8, 2}, x[0].options()), at::empty({8, 2}, x[1].options())};
    const at::Tensor both = at::cat({x[0].cpu(), x[1].cpu()});
    all([&](int rank, c10d::Backend& backend) {
      return backend._allgather_base(gathered[static_cast<size_t>(rank)], x[static_cast<size_t>(rank)], {});
    });
    for (const at::Tensor& result : gathered) EXPECT_TRUE(same_bits(result, both)) << toString(dtype);
    all([&](int rank, c10d::Backend& backend) {
      Tensors own = {x[static_cast<size_t>(rank)]};
      c10d::BroadcastOptions options;
      options.rootRank = 1;
      return backend.broadcast(own, options);
    });
    EXPECT_TRUE(same_bits(x[0], both.slice(0, 4))) << toString(dtype);
  }
}

TEST_F(SimHccl, SendsPartsOfAnySize) {
  Tensors in = {values(0, {5, 3}), values(1, {3, 3})}, out = {at::empty({3, 3}, npu(0)), at::empty({5, 3}, npu(1))};
  std::vector<std::vector<int64_t>> sent = {{1, 4}, {2, 1}}, received = {{1, 2}, {4, 1}};
  all([&](int rank, c10d::Backend& backend) {
    const auto r = static_cast<size_t>(rank);
    return backend.alltoall_base(out[r], in[r], received[r], sent[r], {});
  });
  EXPECT_TRUE(same_bits(out[0], at::cat({in[0].cpu().slice(0, 0, 1), in[1].cpu().slice(0, 0, 2)})));
  EXPECT_TRUE(same_bits(out[1], at::cat({in[0].cpu().slice(0, 1), in[1].cpu().slice(0, 2)})));
  all([&](int rank, c10d::Backend& backend) {
    Tensors own = {rank == 0 ? in[0] : out[1]};
    return rank == 0 ? backend.send(own, 1, 7) : backend.recv(own, 0, 7);
  });
  EXPECT_TRUE(same_bits(out[1], in[0]));
}

TEST_F(SimHccl, ALargeTensorDoesNotBlockItself) {
  Tensors x = {at::ones({3 << 20}, npu(0)), at::ones({3 << 20}, npu(1))};
  all([&](int rank, c10d::Backend& backend) {
    Tensors own = {x[static_cast<size_t>(rank)]};
    return backend.allreduce(own, {});
  });
  EXPECT_TRUE(same_bits(x[1], at::full({3 << 20}, 2.0f)));
}

TEST_F(SimHccl, TheCallReturnsBeforeALatePeerArrivesAndWaitOrdersTheStreamOnly) {
  Tensors first = {values(0, {100})}, second = {values(1, {100})};
  const at::Tensor sum = first[0].cpu() + second[0].cpu();
  const Work work = ranks_[0]->allreduce(first, {});
  EXPECT_FALSE(work->isCompleted());
  work->wait();  // returns: only the stream waits
  const at::Tensor after = first[0] + 1;
  EXPECT_FALSE(work->isCompleted());
  EXPECT_FALSE(guard().getStream(npu()).query());
  ranks_[1]->allreduce(second, {})->wait();  // the late peer
  EXPECT_TRUE(same_bits(after, sum + 1));
  EXPECT_TRUE(work->isCompleted());
}

TEST_F(SimHccl, ReadingBeforeWaitIsAHazardAndGivesPoison) {
  Tensors first = {values(0, {100})}, second = {values(1, {100})};
  Work work = ranks_[0]->allreduce(first, {});
  EXPECT_THAT(message_of([&] { first[0] + 1; }),
              AllOf(HasSubstr("npu hazard: aten::add.out"), HasSubstr("HcclAllReduce")));
  {
    const SwitchScope off("hazard_checker", 0);
    // The peer has not come, so the collective cannot be over; its output is NaN once it has begun.
    bool poisoned = false;
    while (!poisoned) poisoned = at::isnan(first[0]).all().item<bool>();
  }
  ranks_[1]->allreduce(second, {})->wait();
  work->wait();
  EXPECT_FALSE(at::isnan(first[0]).any().item<bool>());
}

TEST_F(SimHccl, TheCollectiveComesAfterWhatTheCallersStreamDid) {
  Tensors first = {at::zeros({100}, npu(0))}, second = {at::zeros({100}, npu(1))};
  synchronize();
  Held held(guard().getStream(npu(0)));
  first[0].add_(3);
  const Work a = ranks_[0]->allreduce(first, {}), b = ranks_[1]->allreduce(second, {});
  EXPECT_FALSE(b->isCompleted());
  held.release();
  b->wait();
  EXPECT_TRUE(same_bits(second[0], at::full({100}, 3.0f)));
}

TEST_F(SimHccl, ATensorThatIsFreedMeanwhileIsKept) {
  Tensors first = {at::full({100000}, 1.0f, npu(0))}, second = {at::full({100000}, 2.0f, npu(1))};
  ranks_[0]->allreduce(first, {});
  first.clear();
  EXPECT_EQ(message_of([] { at::zeros({100000}, npu(0)); }), "") << "its memory is not handed out";
  ranks_[1]->allreduce(second, {})->wait();
  EXPECT_TRUE(same_bits(second[0], at::full({100000}, 3.0f)));
}

TEST_F(SimHccl, BarrierMakesTheHostWait) {
  const Work first = ranks_[0]->barrier({});
  EXPECT_FALSE(first->isCompleted());
  ranks_[1]->barrier({})->wait();
  first->wait();
  EXPECT_TRUE(first->isCompleted());
}

TEST_F(SimHccl, RefusesWhatTheDeviceRefuses) {
  const struct {
    at::ScalarType dtype;
    const char* rule;
  } refused[] = {
      {at::kDouble, "refuse_reduce_float64"}, {at::kBool, "refuse_reduce_bool"}, {at::kByte, "refuse_reduce_uint8"}};
  for (const auto& each : refused) {
    Tensors x = {values(0, {4}, each.dtype)}, y = {values(1, {4}, each.dtype)};
    EXPECT_THAT(message_of([&] { ranks_[0]->allreduce(x, {}); }),
                HasSubstr(std::string("HCCL HcclAllReduce: Unsupported data type ") + toString(each.dtype)));
    at::Tensor part = at::empty({2}, x[0].options());
    EXPECT_THAT(message_of([&] { ranks_[0]->_reduce_scatter_base(part, x[0], {}); }),
                HasSubstr("Unsupported data type"));
    const SwitchScope off(each.rule, 0);
    EXPECT_EQ(message_of([&] {
                ranks_[0]->allreduce(x, {});
                ranks_[1]->allreduce(y, {})->wait();
                synchronize(1);
              }),
              "");
  }
  Tensors strided = {at::ones({4, 4}, npu(0)).t()};
  EXPECT_THAT(message_of([&] { ranks_[0]->allreduce(strided, {}); }), HasSubstr("must be contiguous"));
  Tensors elsewhere = {at::ones({4}, npu(1))};
  EXPECT_THAT(message_of([&] { ranks_[0]->allreduce(elsewhere, {}); }),
              HasSubstr("a tensor on npu:1 for a group on npu:0"));
}

TEST_F(SimHccl, RefusesAGroupOfOneRank) {
  make(1, milliseconds(1000));
  Tensors x = {at::ones({4}, npu(0))};
  EXPECT_THAT(message_of([&] { ranks_[0]->allreduce(x, {}); }), HasSubstr("a communicator of one rank"));
  EXPECT_THAT(message_of([&] { ranks_[0]->barrier({}); }), HasSubstr("a communicator of one rank"));
  const SwitchScope off("refuse_single_rank", 0);
  ranks_[0]->allreduce(x, {})->wait();
  EXPECT_TRUE(same_bits(x[0], at::ones({4})));
}

TEST_F(SimHccl, ATimeOutIsAnErrorOfTheDeviceAndEndsTheGroup) {
  make(2, milliseconds(150));
  Tensors x = {at::ones({4}, npu(0))};
  const Work work = ranks_[0]->allreduce(x, {});
  const std::string message = message_of([] { synchronize(0); });
  EXPECT_THAT(message, AllOf(HasSubstr("HcclAllReduce on rank 0 of 2"), HasSubstr("timed out"), HasSubstr("rank 1")));
  EXPECT_FALSE(work->isSuccess());
  EXPECT_THAT(message_of([&] { work->wait(); }), HasSubstr("timed out"));
  EXPECT_EQ(ranks_[0]->getError(), c10d::ErrorType::TIMEOUT);
  EXPECT_THAT(message_of([&] { ranks_[0]->allreduce(x, {}); }), HasSubstr("cannot be used any more"));
}

TEST_F(SimHccl, AbortEndsAWait) {
  Tensors x = {at::ones({4}, npu(0))};
  const Work work = ranks_[0]->allreduce(x, {});
  ranks_[0]->abort();
  EXPECT_THAT(message_of([] { synchronize(0); }), HasSubstr("the group was aborted"));
  EXPECT_FALSE(work->isSuccess());
}

TEST_F(SimHccl, RanksInDifferentCollectivesAreTold) {
  Tensors x = {at::ones({4}, npu(0))}, y = {at::ones({8}, npu(1))};
  ranks_[0]->allreduce(x, {});
  ranks_[1]->allreduce(y, {});
  const std::string first = message_of([] { synchronize(0); }), second = message_of([] { synchronize(1); });
  EXPECT_THAT(first + second,
              AllOf(HasSubstr("is in another collective"), HasSubstr("with 8 bytes"), HasSubstr("with 16 bytes")));
}

}  // namespace
}  // namespace pacer::simnpu
