#include "pacer/nn/leading_sums.h"

#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/randn.h>

#include "tests/nn/row_cases.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

template <typename T>
class LeadingSumsTest : public ::testing::Test {
 protected:
  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(kRowType<T>); }
  static const T* bits(const at::Tensor& tensor) { return static_cast<const T*>(tensor.const_data_ptr()); }
  static at::Tensor added(const LeadingSums<T>& table, const at::Tensor& u, const at::Tensor& logits) {
    at::Tensor all = logits.clone();
    table.add(bits(u), all.mutable_data_ptr<float>());
    return all;
  }
  PanelArena arena_;
};
TYPED_TEST_SUITE(LeadingSumsTest, RowTypes);

// Biases that can change nothing, that decide among some, and that drown the logits; the last panel is not full.
const std::vector<double> kScales = {0.0, 1e-3, 0.05, 0.3, 3.0};

TYPED_TEST(LeadingSumsTest, FindTheMaximumOfAllSums) {
  int64_t read = 0, panels = 0;
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const double scale : kScales) {
      for (int trial = 0; trial < 20; ++trial) {
        const at::Tensor weight = (this->random({1001, 33}) * scale).contiguous(), u = this->random({33});
        const LeadingSums<TypeParam> table(weight, this->arena_, *set);
        const at::Tensor logits = at::randn({1001}), all = this->added(table, u, logits);
        at::Tensor some = logits.clone();
        const int64_t leader = table.add_leading(this->bits(u), some.template mutable_data_ptr<float>());
        ASSERT_EQ(leader, all.argmax().template item<int64_t>()) << set->name << " " << scale;
        EXPECT_EQ(some.argmax().template item<int64_t>(), leader);
        read += table.panels_read(), panels += table.panels();
        table.add_rest(this->bits(u), some.template mutable_data_ptr<float>());
        EXPECT_TRUE(test::same_bits(some, all)) << set->name << " " << scale;
      }
    }
  }
  EXPECT_LT(read, panels * 3 / 4) << "panels that cannot lead stay unread";
}

TYPED_TEST(LeadingSumsTest, TheFirstOfEqualMaximaLeads) {
  const at::Tensor weight = (this->random({400, 16}) * 0).contiguous(), u = this->random({16});
  const LeadingSums<TypeParam> table(weight, this->arena_);
  at::Tensor logits = at::randn({400}).clamp_max(1.0);
  for (const int64_t place : {399, 250, 131}) {
    logits[place] = 2.0;
    EXPECT_EQ(table.add_leading(this->bits(u), logits.template mutable_data_ptr<float>()), place);
  }
}

TYPED_TEST(LeadingSumsTest, WhatIsNotANumberIsNotLeftOut) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  at::Tensor weight = (this->random({400, 16}) * 1e-3).contiguous();
  const at::Tensor u = this->random({16});
  weight[300][4] = nan;
  const LeadingSums<TypeParam> table(weight, this->arena_);
  at::Tensor logits = at::randn({400});
  table.add_leading(this->bits(u), logits.template mutable_data_ptr<float>());
  EXPECT_TRUE(logits[300].isnan().template item<bool>());
  const LeadingSums<TypeParam> sound((this->random({400, 16}) * 1e-3).contiguous(), this->arena_);
  at::Tensor broken = u.clone();
  broken[0] = nan;
  logits = at::randn({400});
  sound.add_leading(this->bits(broken), logits.template mutable_data_ptr<float>());
  EXPECT_TRUE(logits.isnan().all().template item<bool>());
}

}  // namespace
}  // namespace pacer::nn
