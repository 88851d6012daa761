// Every instruction set against formulas in f64. What a set computes may differ from another in the last bits of f32
// sums; in bf16 a difference there can move a rounding, by at most one step of the last place.
#include "pacer/nn/row_kernels.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>

#include "tests/nn/row_cases.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

template <typename T>
class RowKernelsTest : public ::testing::Test {
 protected:
  static at::Tensor random(at::IntArrayRef shape) { return at::randn(shape).to(kRowType<T>); }
  static at::Tensor empty(at::IntArrayRef shape) { return at::empty(shape, at::TensorOptions().dtype(kRowType<T>)); }
  // As after a store in T.
  static at::Tensor stored(const at::Tensor& wide) { return wide.to(kRowType<T>).to(at::kDouble); }
  // One step of bf16's last place, or a few of f32's.
  static constexpr double kRelative = sizeof(T) == 2 ? 1.0 / 128 : 2e-6;
  static constexpr double kAbsolute = sizeof(T) == 2 ? 1e-6 : 1e-7;
};
TYPED_TEST_SUITE(RowKernelsTest, RowTypes);

TYPED_TEST(RowKernelsTest, ThePlainSetComesFirstAndTheBestOneIsUsed) {
  const auto sets = available_row_kernels<TypeParam>();
  ASSERT_FALSE(sets.empty());
  EXPECT_STREQ(sets.front()->name, "plain");
  for (const auto* set : sets) EXPECT_EQ(set->lanes % 16, 0);
}

// How far ahead weights are fetched changes no bit, so a choice by time is free.
TYPED_TEST(RowKernelsTest, BothWaysOfFetchingGiveTheSameBits) {
  constexpr int64_t kInputs = 50, kPair = sizeof(TypeParam) == 2 ? 2 : 1;
  for (const auto* set : available_row_kernels<TypeParam>()) {
    EXPECT_NE(set->product[0] == nullptr, set->wide_product[0] == nullptr) << set->name;
    for (int64_t rows = 1; rows <= set->most_rows; ++rows) {
      const at::Tensor x = this->random({rows, kInputs}), panel = this->random({kInputs / kPair, set->lanes, kPair});
      at::Tensor wide = at::empty({rows, kInputs}), y[2];
      if (set->widen != nullptr) {
        set->widen(row_data<TypeParam>(x), rows * kInputs, wide.mutable_data_ptr<float>());
        EXPECT_TRUE(test::same_bits(wide, x.to(at::kFloat))) << set->name;
      }
      for (const size_t way : {size_t{0}, size_t{1}}) {
        y[way] = at::empty({rows, set->lanes});
        float* out = y[way].template mutable_data_ptr<float>();
        if (set->widen != nullptr) {
          set->wide_product[way](wide.const_data_ptr<float>(), kInputs, rows, row_data<TypeParam>(panel),
                                 kInputs / kPair, set->lanes, out, set->lanes);
        } else {
          set->product[way](row_data<TypeParam>(x), kInputs, rows, row_data<TypeParam>(panel), kInputs / kPair,
                            set->lanes, out, set->lanes);
        }
      }
      EXPECT_TRUE(test::same_bits(y[0], y[1])) << set->name << " " << rows;
    }
  }
}

TYPED_TEST(RowKernelsTest, Softmax) {
  constexpr int64_t kPadded = 96;
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 96}, {0, 1}, {0, 37}, {17, 19}, {40, 80}}) {
      const at::Tensor scores = at::randn({kPadded}) * 8;
      at::Tensor work = at::empty({kPadded}), probability = this->empty({kPadded});
      set->softmax(scores.const_data_ptr<float>(), begin, end, kPadded, 0.125f, work.mutable_data_ptr<float>(),
                   row_data_to_write<TypeParam>(probability));
      const at::Tensor scaled = this->stored(this->stored(scores) * 0.125);
      const at::Tensor wanted = at::softmax(scaled.slice(0, begin, end), 0);
      EXPECT_TRUE(test::close(probability.slice(0, begin, end), wanted, this->kAbsolute, this->kRelative))
          << set->name << " " << begin << ".." << end;
      EXPECT_EQ(probability.slice(0, 0, begin).count_nonzero().template item<int64_t>(), 0);
      EXPECT_EQ(probability.slice(0, end).count_nonzero().template item<int64_t>(), 0);
    }
  }
}

// Nothing that lies outside of the range may leak in, not even an infinity or a NaN.
TYPED_TEST(RowKernelsTest, SoftmaxIgnoresWhatIsHidden) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    const at::Tensor clean = at::randn({64});
    at::Tensor dirty = clean.clone();
    dirty.slice(0, 0, 5).fill_(std::numeric_limits<double>::infinity());
    dirty.slice(0, 41).fill_(std::numeric_limits<double>::quiet_NaN());
    const auto run = [&](const at::Tensor& scores) {
      at::Tensor work = at::empty({64}), probability = this->empty({64});
      set->softmax(scores.const_data_ptr<float>(), 5, 41, 64, 1.0f, work.mutable_data_ptr<float>(),
                   row_data_to_write<TypeParam>(probability));
      return probability;
    };
    EXPECT_TRUE(test::same_bits(run(dirty), run(clean))) << set->name;
  }
}

TYPED_TEST(RowKernelsTest, RmsNorm) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const int64_t width : {8, 12, 16, 100, 576}) {
      const at::Tensor x = this->random({width}), w = this->random({width});
      at::Tensor y = this->empty({width});
      set->rms_norm(row_data<TypeParam>(x), row_data<TypeParam>(w), width, 1e-5f, row_data_to_write<TypeParam>(y));
      const at::Tensor wide = x.to(at::kDouble);
      const at::Tensor quotient = this->stored(wide * at::rsqrt(wide.square().mean() + 1e-5));
      EXPECT_TRUE(test::close(y, quotient * w.to(at::kDouble), this->kAbsolute, 2 * this->kRelative))
          << set->name << " " << width;
    }
  }
}

TYPED_TEST(RowKernelsTest, FinishAndAddRoundTheLayerFirst) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const bool with_bias : {false, true}) {
      const at::Tensor sums = at::randn({37}), bias = this->random({37}), residual = this->random({37});
      const TypeParam* added = with_bias ? row_data<TypeParam>(bias) : nullptr;
      at::Tensor finished = this->empty({37}), sum = residual.clone();
      set->finish(sums.const_data_ptr<float>(), added, 37, row_data_to_write<TypeParam>(finished));
      set->add(sums.const_data_ptr<float>(), added, 37, row_data_to_write<TypeParam>(sum));
      const at::Tensor layer = (with_bias ? sums + bias.to(at::kFloat) : sums).to(kRowType<TypeParam>);
      EXPECT_TRUE(test::same_bits(finished, layer)) << set->name;
      EXPECT_TRUE(test::same_bits(sum, residual + layer)) << set->name;
    }
  }
}

TYPED_TEST(RowKernelsTest, Gated) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    const at::Tensor gate = at::randn({53}) * 20, up = at::randn({53});
    const at::Tensor gate_bias = this->random({53}), up_bias = this->random({53});
    at::Tensor y = this->empty({53});
    set->gated(gate.const_data_ptr<float>(), row_data<TypeParam>(gate_bias), up.const_data_ptr<float>(),
               row_data<TypeParam>(up_bias), 53, row_data_to_write<TypeParam>(y));
    const at::Tensor g = this->stored(gate + gate_bias.to(at::kFloat));
    const at::Tensor u = this->stored(up + up_bias.to(at::kFloat));
    EXPECT_TRUE(test::close(y, this->stored(at::silu(g)) * u, this->kAbsolute, 2 * this->kRelative)) << set->name;
  }
}

TYPED_TEST(RowKernelsTest, Rotate) {
  for (const auto* set : available_row_kernels<TypeParam>()) {
    for (const int64_t half : {4, 6, 16, 40}) {
      const at::Tensor x = this->random({2 * half}), angle = at::rand({half}) * 7;
      const at::Tensor cos = angle.cos(), sin = angle.sin();
      at::Tensor y = x.clone();
      set->rotate(row_data_to_write<TypeParam>(y), cos.const_data_ptr<float>(), sin.const_data_ptr<float>(), half);
      const at::Tensor a = x.slice(0, 0, half), b = x.slice(0, half);
      const at::Tensor c = cos.to(kRowType<TypeParam>), s = sin.to(kRowType<TypeParam>);
      const at::Tensor wanted = at::cat({a * c - b * s, b * c + a * s});
      EXPECT_TRUE(test::close(y, wanted, 1e-6, sizeof(TypeParam) == 2 ? 0 : 1e-6)) << set->name << " " << half;
    }
  }
}

}  // namespace
}  // namespace pacer::nn
