#include "pacer/base/machine.h"

#include <unistd.h>

#include <cstdlib>

#include <gtest/gtest.h>

#include "pacer/base/clocks.h"
#include "pacer/base/files.h"
#include "pacer/base/resources.h"
#include "pacer/base/version.h"
#include "tests/support/files.h"

namespace pacer {
namespace {

TEST(Machine, IsDescribed) {
  const Machine machine = this_machine();
  EXPECT_FALSE(machine.processor.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_LE(machine.cores, ::sysconf(_SC_NPROCESSORS_CONF));
  EXPECT_GT(machine.memory_bytes, uint64_t{64} << 20);
  EXPECT_NE(machine.system.find("Linux"), std::string::npos);
  EXPECT_EQ(to_json(machine).at("cores"), machine.cores);
}

TEST(Clocks, SleepingCostsWallTimeAndSpinningCostsCpuTime) {
  const Stopwatch asleep;
  ::usleep(60000);
  EXPECT_GE(asleep.wall(), 0.06);
  EXPECT_LT(asleep.cpu(), 0.05);

  const Stopwatch busy;
  const double start = thread_cpu_seconds();
  while (thread_cpu_seconds() - start < 0.03) {
  }
  EXPECT_GE(busy.cpu(), 0.029);
  EXPECT_GE(busy.wall(), 0.029);
}

TEST(Resources, TheSourceTreeIsFoundAndPacerResourcesGoesFirst) {
  EXPECT_TRUE(std::filesystem::exists(resource("tools/fetch.sh")));
  const test::TemporaryFolder folder;
  write_file(folder.path() / "own.txt", "x");
  ::setenv("PACER_RESOURCES", folder.path().c_str(), 1);
  EXPECT_EQ(resource("own.txt"), folder.path() / "own.txt");
  EXPECT_TRUE(std::filesystem::exists(resource("tools/fetch.sh"))) << "what is not there is looked for elsewhere";
  try {
    resource("nothing/of/this/name");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find(folder.path().string()), std::string::npos) << error.what();
  }
  ::unsetenv("PACER_RESOURCES");
}

TEST(Version, HasThreeNumbersAndACompiler) {
  int major = -1, minor = -1, patch = -1;
  EXPECT_EQ(std::sscanf(version(), "%d.%d.%d", &major, &minor, &patch), 3);
  EXPECT_NE(std::string(compiler()).find(' '), std::string::npos);
}

}  // namespace
}  // namespace pacer
