// The checks of pacer/conformance as tests: on the host, and in a process of its own on every other device (the
// device of a process is $PACER_TEST_DEVICE; tests/CMakeLists.txt adds one run per back end that is built).
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "pacer/conformance/run.h"
#include "pacer/device/plugin.h"
#include "pacer/device/streams.h"

namespace pacer::conformance {
namespace {

struct Devices {
  device::Runtime runtime, host;
};

Devices& devices() {
  static Devices opened = [] {
    const char* name = std::getenv("PACER_TEST_DEVICE");
    return Devices{device::Runtime::open(name == nullptr ? "cpu" : name), device::Runtime::open("cpu")};
  }();
  return opened;
}

// 200 seeds before a release.
int seeds() {
  const char* wish = std::getenv("PACER_TEST_SEEDS");
  return wish == nullptr ? 20 : std::atoi(wish);
}

class Conformance : public testing::TestWithParam<Check> {};

TEST_P(Conformance, OnThisDevice) {
  const Outcome outcome = run(GetParam(), devices().runtime, devices().host, seeds());
  if (outcome.status == Outcome::Status::left_out) {
    // Not a skipped test: what a device cannot do is data, and the rest of the suite counts.
    std::cout << "left out: " << outcome.message << "\n";
    return;
  }
  EXPECT_EQ(outcome.status, Outcome::Status::passed) << outcome.message;
}

std::string test_name(const testing::TestParamInfo<Check>& info) {
  std::string name = info.param.name;
  for (char& c : name) c = c == '.' ? '_' : c;
  return name;
}

// Each wait and each record of a stream, left out by its name, fails a check. tools/mutate_waits.sh does the same with
// the whole suite and names the check.
TEST(MutatedWaits, EverySiteIsMissedByACheck) {
  const device::Plugin* plugin = devices().runtime.plugin();
  if (plugin == nullptr || plugin->switches == nullptr) return;  // only a simulated device notices at every run
  struct AllSites {
    ~AllSites() { device::disable_sites({}); }
  } restored;
  for (const Check& check : runtime_checks()) run(check, devices().runtime, devices().host);
  const std::vector<std::string> sites = device::reached_sites();
  EXPECT_GE(sites.size(), 8u);
  for (const std::string& site : sites) {
    device::disable_sites({site});
    bool noticed = false;
    for (const Check& check : runtime_checks()) {
      noticed |= run(check, devices().runtime, devices().host).status == Outcome::Status::failed;
      if (noticed) break;
    }
    EXPECT_TRUE(noticed) << site;
  }
}

INSTANTIATE_TEST_SUITE_P(Checks, Conformance, testing::ValuesIn(all_checks()), test_name);

}  // namespace
}  // namespace pacer::conformance
