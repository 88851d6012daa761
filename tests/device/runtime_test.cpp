#include "pacer/device/runtime.h"

#include <gtest/gtest.h>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/base/machine.h"

namespace pacer::device {
namespace {

ErrorKind kind_of(const std::string& spec) {
  try {
    Runtime::open(spec);
  } catch (const Error& error) {
    return error.kind();
  }
  return ErrorKind::bug;
}

TEST(Runtime, OpensTheCpuAndSaysWhy) {
  std::vector<std::string> lines;
  set_log_sink([&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  for (const std::string spec : {"cpu", "auto"}) {
    const Runtime runtime = Runtime::open(spec);
    EXPECT_TRUE(runtime.device().is_cpu());
    EXPECT_EQ(runtime.name(), "cpu");
  }
  set_log_sink({});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("as asked for"), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("auto:"), std::string::npos) << lines[1];
}

TEST(Runtime, TellsAnAbsentDeviceFromAnUnknownOne) {
  EXPECT_EQ(kind_of("cuda:0"), ErrorKind::device);
  EXPECT_EQ(kind_of("npu"), ErrorKind::device);
  EXPECT_EQ(kind_of("gpu"), ErrorKind::usage);
  EXPECT_EQ(kind_of(""), ErrorKind::usage);
  EXPECT_EQ(kind_of("cpu:1"), ErrorKind::usage);
}

TEST(Runtime, Capabilities) {
  const Runtime runtime = Runtime::open("cpu");
  EXPECT_TRUE(runtime.can(Capability::reduce_float64));
  EXPECT_TRUE(runtime.can(Capability::float64));
  EXPECT_FALSE(runtime.can(Capability::event_timing));
}

TEST(Runtime, MemoryIsWithinTheMachine) {
  const MemoryInfo memory = Runtime::open("cpu").memory();
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
  EXPECT_LE(memory.total_bytes, this_machine().memory_bytes);
}

TEST(Runtime, ThreadsStayWithinTheCores) {
  Runtime runtime = Runtime::open("cpu");
  const int before = runtime.threads(), cores = this_machine().cores;
  runtime.set_threads(1);
  EXPECT_EQ(runtime.threads(), 1);
  EXPECT_THROW(runtime.set_threads(0), Error);
  EXPECT_THROW(runtime.set_threads(cores + 1), Error);
  EXPECT_EQ(runtime.threads(), 1);
  runtime.set_threads(before <= cores ? before : cores);
}

}  // namespace
}  // namespace pacer::device
