#include "pacer/bench/stopclock.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "pacer/base/clocks.h"
#include "pacer/base/error.h"

namespace pacer::bench {
namespace {

void touch(size_t megabytes) {
  const size_t bytes = megabytes * 1'000'000;
  const auto memory = std::make_unique<unsigned char[]>(bytes);
  std::memset(memory.get(), 1, bytes);
  volatile unsigned char seen = memory[bytes / 2];
  static_cast<void>(seen);
}

TEST(Stopclock, TheMedianOfFewValues) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1}), 2.5);
  EXPECT_THROW(median({}), Error);
}

TEST(Stopclock, WarmUpIsRunButNotTimed) {
  int calls = 0;
  const Timings timings = time_steps(2, 3, [&] {
    ++calls;
    const double end = process_cpu_seconds() + 2e-3;
    while (process_cpu_seconds() < end) continue;
  });
  EXPECT_EQ(calls, 5);
  ASSERT_EQ(timings.wall.size(), 3u);
  ASSERT_EQ(timings.cpu.size(), 3u);
  for (const double cpu : timings.cpu) EXPECT_GE(cpu, 2e-3);
  EXPECT_THROW(time_steps(1, 0, [] {}), Error);
}

// Memory that is taken and given back inside of a step counts; what was used before the first step does not.
TEST(Stopclock, ThePeakIsMeasuredFromTheFirstStepOn) {
  touch(400);
  const Timings timings = time_steps(1, 1, [] { touch(100); });
  ASSERT_TRUE(timings.delta_rss_mb.has_value());
  EXPECT_GE(*timings.delta_rss_mb, 95);
  EXPECT_LE(*timings.delta_rss_mb, 150);
  EXPECT_GE(timings.peak_rss_mb, 400) << "of the whole process";
  const Timings nothing = time_steps(0, 1, [] {});
  EXPECT_LE(nothing.delta_rss_mb.value(), 20);
}

}  // namespace
}  // namespace pacer::bench
