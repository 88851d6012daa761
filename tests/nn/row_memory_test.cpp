#include "pacer/nn/row_memory.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace pacer::nn {
namespace {

TEST(RowMemory, ServesMemoryAgainOnlyWhenNobodyHoldsIt) {
  const auto memory = std::make_shared<RowMemory>();
  at::Tensor first = memory->take(4, 100);
  EXPECT_EQ(first.sizes(), (at::IntArrayRef({4, 100})));
  EXPECT_EQ(first.scalar_type(), at::kFloat);
  const void* place = first.const_data_ptr();
  at::Tensor view = first[2];  // holds the memory as well
  first.reset();
  const at::Tensor other = memory->take(4, 100);
  EXPECT_NE(other.const_data_ptr(), place);
  view.reset();
  EXPECT_EQ(memory->take(2, 150).const_data_ptr(), place) << "fewer values fit too";
}

TEST(RowMemory, TensorsOutliveIt) {
  at::Tensor tensor;
  {
    const auto memory = std::make_shared<RowMemory>();
    tensor = memory->take(3, 7);
    tensor.fill_(5);
  }
  EXPECT_EQ(tensor.sum().item<float>(), 105.0f);
}

TEST(RowMemory, ThreadsNeverShareABlock) {
  const auto memory = std::make_shared<RowMemory>();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const at::Tensor tensor = memory->take(2, 50);
        auto* values = tensor.mutable_data_ptr<float>();
        for (int k = 0; k < 100; ++k) values[k] = static_cast<float>(t);
        for (int k = 0; k < 100; ++k) wrong[static_cast<size_t>(t)] += values[k] != static_cast<float>(t) ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace pacer::nn
