// An entry of docs/known_failures.md about operators that a device lacks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "pacer/conformance/tiny.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/kernels.h"
#include "pacer/draft/training.h"
#include "tests/support/files.h"

namespace pacer::conformance {
namespace {

// The recurrent head in bf16: devices refuse the fused GRU cell and a log-sum-exp in it.
TEST(ConformanceReports, Report88TheRecurrentHeadTrainsInBf16) {
  const char* name = std::getenv("PACER_TEST_DEVICE");
  device::Runtime runtime = device::Runtime::open(name == nullptr ? "cpu" : name), host = device::Runtime::open("cpu");
  const test::TemporaryFolder folder;
  write_tiny_target(folder.path());
  device::use_kernel_paths({device::KernelPath::plain, device::KernelPath::plain});
  const auto loss_on = [&](device::Runtime& where) {
    const std::shared_ptr<const target::Target> target = target::Target::load(folder.path(), at::kBFloat16, where);
    const draft::DraftConfig config = tiny_draft(*target, "dspark", draft::MarkovKind::rnn);
    const auto draft = draft::DraftTraining::create(config, {}, target, 9, at::kBFloat16, where);
    const draft::FeatureBatch batch = tiny_features(*target, tiny_rows(4), config.target_layer_ids);
    const draft::BlockPlan plan = draft->plan(batch, 3, {2, 1});
    const draft::LossTerms terms =
        draft->loss(batch, plan, {0.1 / plan.ce_weight_sum, 0.9 / plan.weight_sum, 1.0 / plan.weight_sum});
    for (const auto& [parameter, master] : draft->parameters()) {
      if (!master.grad().defined()) continue;
      EXPECT_TRUE(std::isfinite(device::to_host(master.grad()).sum().item<double>())) << parameter;
    }
    EXPECT_TRUE(draft->parameters().at("markov_head.joint_proj.weight").grad().defined());
    return terms;
  };
  const draft::LossTerms there = loss_on(runtime), here = loss_on(host);
  device::use_kernel_paths({});
  EXPECT_NEAR(there.ce_sum, here.ce_sum, 1e-2 * here.ce_sum);
  EXPECT_NEAR(there.l1_sum, here.l1_sum, 1e-2 * here.l1_sum);
  EXPECT_NEAR(there.confidence_sum, here.confidence_sum, 1e-2 * here.confidence_sum);
}

}  // namespace
}  // namespace pacer::conformance
