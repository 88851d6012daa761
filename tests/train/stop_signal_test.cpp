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

TEST(StopSignal, LeavesIgnoredSignalsIgnored) {
  const auto before = std::signal(SIGHUP, SIG_IGN);
  {
    const StopSignal stop;
    std::raise(SIGHUP);
    EXPECT_EQ(StopSignal::received(), 0);
  }
  EXPECT_EQ(std::signal(SIGHUP, before), SIG_IGN);
}

}  // namespace
}  // namespace pacer::train
