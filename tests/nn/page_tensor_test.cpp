#include "pacer/nn/page_tensor.h"

#include <fstream>
#include <string>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

namespace pacer::nn {
namespace {

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * 4096;
}

TEST(PageTensor, IsZeroAndTakesMemoryOnlyWhereItIsWritten) {
  for (const int64_t rows : {3, 100'000}) {  // from the heap, and 200 MB on pages of its own
    const int64_t before = resident_bytes();
    at::Tensor tensor = page_tensor({rows, 512}, at::kFloat);
    EXPECT_LT(resident_bytes() - before, 20 << 20);
    EXPECT_EQ(tensor[rows - 1].abs().max().item<float>(), 0.0f);
    tensor[1].fill_(2.0f);
    EXPECT_EQ(tensor[1].sum().item<float>(), 1024.0f);
    EXPECT_EQ(tensor.sizes(), (at::IntArrayRef{rows, 512}));
  }
}

TEST(PageTensor, GivesItsMemoryBackAtOnce) {
  const int64_t before = resident_bytes();
  {
    at::Tensor tensor = page_tensor({50'000, 512}, at::kFloat);
    const at::Tensor part = tensor.narrow(0, 0, 40'000);
    tensor.reset();
    part.fill_(1.0f);
    EXPECT_GT(resident_bytes() - before, 70 << 20);
  }
  EXPECT_LT(resident_bytes() - before, 20 << 20);
}

}  // namespace
}  // namespace pacer::nn
