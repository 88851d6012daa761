// Ranks that are processes: this test program starts itself again as the other ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "tests/simnpu/support.h"
#include "tests/support/files.h"

namespace pacer::simnpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;

// "ROLE RANK SIZE FILE"
constexpr const char* kRole = "PACER_SIMNPU_TEST_ROLE";

struct Group {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::Backend> backend;
};

Group join(const std::string& file, int rank, int size) {
  plugin();
  const auto store = c10::make_intrusive<c10d::FileStore>(file, size);
  return {store, plugin().make_backend(c10::make_intrusive<c10d::PrefixStore>("group", store), rank, size,
                                       std::chrono::seconds(60))};
}

class Child {
 public:
  Child(const std::string& role, int rank, int size, const std::string& file) {
    setenv(kRole, (role + " " + std::to_string(rank) + " " + std::to_string(size) + " " + file).c_str(), 1);
    std::string program = "/proc/self/exe", filter = "--gtest_filter=SimHcclProcesses.DISABLED_OtherRank",
                also = "--gtest_also_run_disabled_tests";
    char* arguments[] = {program.data(), filter.data(), also.data(), nullptr};
    EXPECT_EQ(posix_spawn(&process_, program.c_str(), nullptr, nullptr, arguments, environ), 0);
    unsetenv(kRole);
  }
  ~Child() {
    if (process_ > 0) end();
  }
  int wait() {  // exit code
    int status = 0;
    waitpid(process_, &status, 0);
    process_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void end() {
    kill(process_, SIGKILL);
    wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

 private:
  pid_t process_ = 0;
};

at::Tensor of_rank(int rank) { return at::arange(1000).mul(rank + 1).to(at::kFloat).to(npu()); }

// Sums, a gather, a barrier, and a chain of them without a wait of the host in between.
void expect_collectives(c10d::Backend& backend) {
  const int rank = backend.getRank(), size = backend.getSize();
  at::Tensor gathered = at::empty({1000 * size}, npu()), own = of_rank(rank);
  backend._allgather_base(gathered, own, {})->wait();
  for (int other = 0; other < size; ++other) {
    EXPECT_TRUE(same_bits(gathered.slice(0, 1000 * other, 1000 * (other + 1)), of_rank(other)));
  }
  Tensors sum = {own};
  for (int i = 0; i < 20; ++i) {
    backend.allreduce(sum, {})->wait();
    sum[0].div_(size);
  }
  at::Tensor expected = at::arange(1000).to(at::kFloat);
  expected = expected * (size + 1) / 2;
  EXPECT_LT((sum[0].cpu() - expected).abs().max().item<float>(), 1e-3f);
  backend.barrier({})->wait();
}

// What the other ranks do; not a test by itself.
TEST(SimHcclProcesses, DISABLED_OtherRank) {
  std::istringstream role(std::getenv(kRole) ? std::getenv(kRole) : "");
  std::string what, file;
  int rank = 0, size = 0;
  ASSERT_TRUE(role >> what >> rank >> size >> file);
  const Group group = join(file, rank, size);
  if (what == "collectives") return expect_collectives(*group.backend);
  group.backend->barrier({})->wait();
  group.store->set("met", std::string("yes"));
  group.store->get("never");  // until it is killed
}

TEST(SimHcclProcesses, ThreeProcessesAgree) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "store").string();
  Child first("collectives", 1, 3, file), second("collectives", 2, 3, file);
  expect_collectives(*join(file, 0, 3).backend);
  EXPECT_EQ(first.wait(), 0);
  EXPECT_EQ(second.wait(), 0);
}

TEST(SimHcclProcesses, ADeadPeerEndsTheWait) {
  const test::TemporaryFolder folder;
  const std::string file = (folder.path() / "store").string();
  Child peer("waits", 1, 2, file);
  const Group group = join(file, 0, 2);
  group.backend->barrier({})->wait();
  group.store->get("met");
  Tensors x = {of_rank(0)};
  const auto work = group.backend->allreduce(x, {});
  EXPECT_FALSE(work->isCompleted());
  peer.end();
  // Long before the time-out of a minute, and said to be something else.
  EXPECT_THAT(message_of([] { synchronize(); }),
              AllOf(HasSubstr("HcclAllReduce on rank 0 of 2"), HasSubstr("rank 1 closed the connection")));
  EXPECT_FALSE(work->isSuccess());
  EXPECT_EQ(group.backend->getError(), c10d::ErrorType::COMM_ERROR);
}

}  // namespace
}  // namespace pacer::simnpu
