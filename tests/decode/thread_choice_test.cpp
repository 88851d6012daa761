#include "pacer/decode/thread_choice.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "pacer/base/machine.h"
#include "tests/decode/toy.h"

namespace pacer::decode {
namespace {

using std::chrono::milliseconds;

// A pass takes a time that depends on the number of threads alone.
class Clocked final : public test::ToyTarget {
 public:
  Clocked(milliseconds alone, milliseconds together) : ToyTarget(8, 1, 2.0), alone_(alone), together_(together) {}
  device::Runtime* runtime = nullptr;
  target::TargetOutput forward(const target::TokenBatch& batch, const target::Taps& taps,
                               const std::vector<target::KvCache*>& caches) const override {
    std::this_thread::sleep_for(runtime->threads() == 1 ? alone_ : together_);
    return ToyTarget::forward(batch, taps, caches);
  }

 private:
  milliseconds alone_, together_;
};

TEST(ThreadChoice, TheFasterNumberStays) {
  if (this_machine().cores < 2) GTEST_SKIP() << "one core: there is nothing to choose";
  for (const bool all_faster : {true, false}) {
    auto runtime = device::Runtime::open("cpu");
    runtime.set_threads(2);
    Clocked target(milliseconds(all_faster ? 6 : 1), milliseconds(all_faster ? 1 : 6));
    target.runtime = &runtime;
    const ThreadChoice choice = choose_threads(target, {1, 2}, runtime);
    EXPECT_EQ(choice.threads, all_faster ? 2 : 1);
    EXPECT_EQ(runtime.threads(), choice.threads);
    EXPECT_GE(choice.token_s, 1e-3);
    EXPECT_EQ(measure_threads(target, {1, 2}, runtime).threads, choice.threads);
    runtime.set_threads(1);
    EXPECT_EQ(choose_threads(target, {1, 2}, runtime).threads, 1) << "nothing to choose from";
  }
}

}  // namespace
}  // namespace pacer::decode
