// Each rule of the device catches its mistake in the real message's words, and only while its switch is on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gru_cell.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>

#include "pacer/base/error.h"
#include "tests/simnpu/support.h"

namespace pacer::simnpu {
namespace {

using ::testing::HasSubstr;

at::TensorOptions of(at::ScalarType dtype) { return at::TensorOptions(npu()).dtype(dtype); }

struct Rule {
  const char* name;
  void (*mistake)();
  const char* message;
};
void PrintTo(const Rule& rule, std::ostream* out) { *out << rule.name; }

void event_timing() {
  const c10::Stream stream = guard().getStream(npu());
  c10::Event first(npu().type(), c10::EventFlag::BACKEND_DEFAULT),
      second(npu().type(), c10::EventFlag::BACKEND_DEFAULT);
  first.record(stream);
  second.record(stream);
  second.synchronize();
  EXPECT_GE(first.elapsedTime(second), 0.0);
}

at::Tensor gru(at::ScalarType dtype) {
  const at::Tensor x = at::ones({2, 4}, of(dtype)), weight = at::ones({12, 4}, of(dtype));
  return at::gru_cell(x, x, weight, weight);
}

const Rule kRules[] = {
    {"refuse_float64", [] { at::ones({2, 2}, of(at::kDouble)) + 1; }, "not implemented for DT_DOUBLE"},
    {"refuse_zero_size", [] { at::empty({0, 3}, npu()) + 1; }, "coreDim must not equal 0"},
    {"refuse_int64_indices",
     [] { at::index_select(at::ones({4, 2}, npu()), 0, at::tensor({1, 2}, at::kLong).to(npu())); },
     "not implemented for DT_INT64, should be in dtype support list [DT_INT32]"},
    {"refuse_bfloat16_gru", [] { gru(at::kBFloat16); }, "DynamicGRUV2: input dtype DT_BFLOAT16 is not supported"},
    {"refuse_bfloat16_logsumexp", [] { at::logsumexp(at::ones({2, 2}, of(at::kBFloat16)), 1); },
     "aten::logsumexp failed, detail:EZ1001: Tensor self not implemented for DT_BFLOAT16"},
    {"refuse_event_timing", event_timing, "aclrtEventElapsedTime failed"},
};

class SimnpuRules : public ::testing::TestWithParam<Rule> {};

TEST_P(SimnpuRules, CatchesItsMistakeWhileItIsOn) {
  {
    const SwitchScope on(GetParam().name, 1);
    EXPECT_THAT(message_of(GetParam().mistake), HasSubstr(GetParam().message));
  }
  const SwitchScope off(GetParam().name, 0);
  EXPECT_EQ(message_of(GetParam().mistake), "");
  synchronize();
}

INSTANTIATE_TEST_SUITE_P(All, SimnpuRules, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(SimnpuRulesMore, Float64MayBeStoredAndCopied) {
  const at::Tensor x = at::arange(4, at::kDouble);
  EXPECT_TRUE(same_bits(x.to(npu()).to(at::kFloat), x.to(at::kFloat)));
}

TEST(SimnpuRulesMore, TensorsWithoutElementsMayBeMadeAndCopied) {
  const at::Tensor x = at::zeros({0, 3}, npu());
  EXPECT_EQ(x.clone().cpu().sizes(), x.sizes());
}

TEST(SimnpuRulesMore, AnEmptyTensorInAListIsRefusedToo) {
  const std::vector<at::Tensor> list = {at::ones({2}, npu()), at::empty({0}, npu())};
  EXPECT_THAT(message_of([&] { at::_foreach_add(list, 1); }), HasSubstr("coreDim must not equal 0"));
}

TEST(SimnpuRulesMore, RowsWiderThanTheBufferAreNotReducedByOneOperator) {
  const at::Tensor rows = at::ones({3, 40}, npu());
  for (const auto& [columns, refused] : std::vector<std::pair<int64_t, bool>>{{0, false}, {40, false}, {39, true}}) {
    const SwitchScope limit("reduced_columns", columns);
    for (const std::string& message : {message_of([&] { rows.sum(1); }), message_of([&] { rows.amax(1); }),
                                       message_of([&] { at::logsumexp(rows, 1); })}) {
      EXPECT_EQ(message.find("ub overflow, requires 40 columns while 39") != std::string::npos, refused) << message;
    }
    EXPECT_EQ(plugin().capabilities().most_reduced_columns, columns > 0 ? columns : 4096);
  }
  synchronize();
}

TEST(SimnpuRulesMore, Int32IndicesAreAlwaysTaken) {
  const SwitchScope on("refuse_int64_indices", 1);
  const at::Tensor x = at::ones({4, 2}, npu()), index = at::tensor({1, 2}, at::kInt).to(npu());
  EXPECT_EQ(at::index_select(x, 0, index).sizes(), (std::vector<int64_t>{2, 2}));
}

TEST(SimnpuRulesMore, TheFusedGruCellGivesTheCpusNumbersAndGradients) {
  const auto run = [](c10::Device device) {
    at::Generator random = at::globalContext().defaultGenerator(c10::kCPU).clone();
    random.set_current_seed(2);
    std::vector<at::Tensor> t;
    for (const auto& sizes : {std::vector<int64_t>{3, 5}, {3, 4}, {12, 5}, {12, 4}, {12}, {12}}) {
      t.push_back(at::randn(sizes, random).to(device).requires_grad_(true));
    }
    const at::Tensor h = at::gru_cell(t[0], t[1], t[2], t[3], t[4], t[5]);
    (h * h).sum().backward();
    std::vector<at::Tensor> out = {h};
    for (const at::Tensor& tensor : t) out.push_back(tensor.grad());
    return out;
  };
  const auto there = run(npu()), host = run(c10::kCPU);
  for (size_t i = 0; i < host.size(); ++i) {
    EXPECT_LT((there[i].cpu() - host[i]).abs().max().item<float>(), 1e-5f * host[i].abs().max().item<float>()) << i;
  }
}

TEST(SimnpuRulesMore, TheDeviceCountIgnoresTheVisibilityVariableUnlessToldOtherwise) {
  EXPECT_FALSE(plugin().visibility().runtime_applies_it);
  EXPECT_EQ(plugin().visibility().variable, "ASCEND_RT_VISIBLE_DEVICES");
  setenv("ASCEND_RT_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(plugin().device_count(), 2);
  {
    const SwitchScope told("ignore_visible_devices", 0);
    EXPECT_EQ(plugin().device_count(), 1);
    EXPECT_TRUE(plugin().visibility().runtime_applies_it);
    setenv("ASCEND_RT_VISIBLE_DEVICES", "1,0", 1);
    EXPECT_EQ(plugin().device_count(), 0) << "numbers must ascend";
    setenv("ASCEND_RT_VISIBLE_DEVICES", "0,1x", 1);
    EXPECT_EQ(plugin().device_count(), 2) << "the list ends at a character that is no digit";
    setenv("ASCEND_RT_VISIBLE_DEVICES", "0,7", 1);
    EXPECT_EQ(plugin().device_count(), 1) << "and at a device that is not there";
    setenv("ASCEND_RT_VISIBLE_DEVICES", "", 1);
    EXPECT_EQ(plugin().device_count(), 0);
  }
  unsetenv("ASCEND_RT_VISIBLE_DEVICES");
}

TEST(SimnpuRulesMore, CapabilitiesFollowTheSwitches) {
  using device::Capability;
  EXPECT_FALSE(plugin().capabilities().has(Capability::float64));
  EXPECT_FALSE(plugin().capabilities().has(device::Collective::all_reduce, at::kDouble));
  EXPECT_TRUE(plugin().capabilities().has(device::Collective::broadcast, at::kDouble));
  EXPECT_TRUE(plugin().capabilities().has(Capability::int64_indices));
  const SwitchScope allow("refuse_float64", 0), refuse("refuse_int64_indices", 1), reduce("refuse_reduce_float64", 0);
  EXPECT_TRUE(plugin().capabilities().has(Capability::float64));
  EXPECT_TRUE(plugin().capabilities().has(device::Collective::all_reduce, at::kDouble));
  EXPECT_FALSE(plugin().capabilities().has(Capability::int64_indices));
}

TEST(SimnpuRulesMore, SwitchesAreCheckedByName) {
  EXPECT_THAT(message_of([] { plugin().set_switch("refuse_everything", 1); }),
              HasSubstr("no switch 'refuse_everything'"));
  EXPECT_THAT(message_of([] { plugin().set_switch("poison", 2); }), HasSubstr("'2' is no whole number from 0 to 1"));
}

}  // namespace
}  // namespace pacer::simnpu
