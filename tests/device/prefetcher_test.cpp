#include "pacer/device/prefetcher.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include <ATen/ops/full.h>

#include "pacer/base/error.h"

namespace pacer::device {
namespace {

struct Numbers {
  int number;
  at::Tensor tensor;
};

std::vector<at::Tensor> tensors_of(const Numbers& batch) { return {batch.tensor}; }

class PrefetcherOnTheHost : public testing::Test {
 protected:
  Runtime runtime_ = Runtime::open("cpu");
};

TEST_F(PrefetcherOnTheHost, GivesBatchesInOrderAndEnds) {
  int made = 0;
  Prefetcher<Numbers> prefetcher(
      runtime_,
      [&]() -> std::optional<Numbers> {
        if (made == 5) return std::nullopt;
        return Numbers{made, at::full({2}, made++)};
      },
      tensors_of, 2);
  for (int i = 0; i < 5; ++i) {
    const auto batch = prefetcher.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->number, i);
    EXPECT_EQ(batch->tensor[1].item<int>(), i);
  }
  EXPECT_FALSE(prefetcher.next());
  EXPECT_FALSE(prefetcher.next());
}

TEST_F(PrefetcherOnTheHost, AnExceptionArrivesAsItselfBehindTheBatchesBeforeIt) {
  int made = 0;
  Prefetcher<Numbers> prefetcher(
      runtime_,
      [&]() -> std::optional<Numbers> {
        if (made == 1) throw Error(ErrorKind::data, "row 7 of rows.jsonl is cut off", "make it again");
        return Numbers{made++, {}};
      },
      tensors_of);
  EXPECT_EQ(prefetcher.next()->number, 0);
  for (int i = 0; i < 2; ++i) {
    try {
      prefetcher.next();
      ADD_FAILURE() << "no exception";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "row 7 of rows.jsonl is cut off");
      EXPECT_EQ(error.hint(), "make it again");
    }
  }
}

TEST_F(PrefetcherOnTheHost, EndsWithBatchesThatNobodyTook) {
  Prefetcher<Numbers> prefetcher(runtime_, []() -> std::optional<Numbers> { return Numbers{1, {}}; }, tensors_of, 3);
  EXPECT_EQ(prefetcher.next()->number, 1);
}

}  // namespace
}  // namespace pacer::device
