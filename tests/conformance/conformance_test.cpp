// The checks of pacer/conformance as tests: on the host, and in a process of its own on every other device (the
// device of a process is $PACER_TEST_DEVICE; tests/CMakeLists.txt adds one run per back end that is built).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>

#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>

#include "pacer/conformance/run.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/device/plugin.h"
#include "pacer/device/streams.h"
#include "pacer/nn/causal_attention.h"
#include "pacer/nn/rms_norm.h"
#include "pacer/nn/swiglu.h"

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

int number(const char* variable, int otherwise) {
  const char* wish = std::getenv(variable);
  return wish == nullptr ? otherwise : std::atoi(wish);
}

// 200 seeds before a release, in parts if need be.
int seeds() { return number("PACER_TEST_SEEDS", 20); }
int first_seed() { return number("PACER_TEST_FIRST_SEED", 1); }

class Conformance : public testing::TestWithParam<Check> {};

TEST_P(Conformance, OnThisDevice) {
  const Outcome outcome = run(GetParam(), devices().runtime, devices().host, seeds(), first_seed());
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
    ~AllSites() {
      device::disable_sites({});
      devices().runtime.synchronize();  // what the missing waits left unordered must not meet a later test
    }
  } restored;
  for (const Check& check : runtime_checks()) run(check, devices().runtime, devices().host);
  const std::vector<std::string> sites = device::reached_sites();
  EXPECT_GE(sites.size(), 8u);
  for (const std::string& site : sites) {
    device::disable_sites({site});
    const auto noticed = [] {
      return std::ranges::any_of(runtime_checks(), [](const Check& check) {
        return run(check, devices().runtime, devices().host).status == Outcome::Status::failed;
      });
    };
    // Orders between streams are checked at every run; that the host did not wait shows unless the device was faster.
    int tries = 0;
    while (!noticed() && tries < 50) ++tries;
    EXPECT_LT(tries, 50) << site;
  }
}

// A device with fused operators computes with them, to the host's results, and not where the plain path is asked for.
TEST(FusedOperators, AreUsedWhereTheDeviceHasThem) {
  const device::Runtime& runtime = devices().runtime;
  const device::Plugin* plugin = runtime.plugin();
  if (plugin == nullptr || plugin->switches == nullptr || plugin->operators == nullptr) return;
  const auto launches = [&] {
    for (const device::Switch& one : plugin->switches()) {
      if (one.name == "launches") return one.value;
    }
    return int64_t{0};
  };
  const auto normal = [](std::vector<int64_t> sizes) {
    return at::randn(sizes, at::TensorOptions().dtype(at::kFloat));
  };
  const at::Tensor x = normal({6, 32}), weight = normal({32}), q = normal({7, 4, 8}), k = normal({20, 2, 8}),
                   v = normal({20, 2, 8});
  const auto there = [&](const at::Tensor& tensor) { return device::to_device(runtime, tensor); };
  const std::vector<std::function<at::Tensor(bool)>> functions = {
      [&](bool host) { return host ? nn::rms_norm(x, weight, 1e-6) : nn::rms_norm(there(x), there(weight), 1e-6); },
      [&](bool host) { return nn::swiglu(host ? x : there(x)); },
      [&](bool host) {
        return host ? nn::causal_attention(q, k, v, 5) : nn::causal_attention(there(q), there(k), there(v), 5);
      }};
  for (const auto& function : functions) {
    const auto count = [&](device::KernelPath path) {
      device::use_kernel_paths({path, path});
      const int64_t before = launches();
      const at::Tensor found = device::to_host(function(false));
      const int64_t used = launches() - before;
      EXPECT_TRUE(at::allclose(found, function(true), 1e-5, 1e-5));
      return used;
    };
    const int64_t plain = count(device::KernelPath::plain), fused = count(device::KernelPath::automatic);
    EXPECT_NE(fused, plain);  // other kernels ran
  }
  device::use_kernel_paths({});
}

INSTANTIATE_TEST_SUITE_P(Checks, Conformance, testing::ValuesIn(all_checks()), test_name);

}  // namespace
}  // namespace pacer::conformance
