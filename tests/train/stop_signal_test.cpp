#include "pacer/train/stop_signal.h"

#include <gtest/gtest.h>

namespace pacer::train {
namespace {

TEST(StopSignal, IsNotedOnceAndEndsTheProcessTheSecondTime) {
  {
    const StopSignal stop;
    EXPECT_EQ(StopSignal::received(), 0);
    std::raise(SIGINT);
    EXPECT_EQ(StopSignal::received(), SIGINT);
    EXPECT_EXIT(std::raise(SIGINT), ::testing::KilledBySignal(SIGINT), "");
  }
  {
    const StopSignal again;
    EXPECT_EQ(StopSignal::received(), 0);
  }
  EXPECT_EXIT(std::raise(SIGINT), ::testing::KilledBySignal(SIGINT), "");  // as before
}

}  // namespace
}  // namespace pacer::train
