// Weights in blocks: every instruction set against plain C++ to the bit, and plain C++ against the formulas in f64.
#include "pacer/nn/quant_linear.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/floor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/round.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "pacer/base/error.h"
#include "pacer/base/random.h"
#include "pacer/formats/ggml_types.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

struct TypeCase {
  QuantType type;
  formats::GgmlType stored;
  size_t block_bytes;
};
constexpr QuantRows kFinenesses[] = {QuantRows::bytes, QuantRows::words};
const TypeCase kTypes[] = {{QuantType::q8_0, formats::GgmlType::Q8_0, 34},
                           {QuantType::q4_0, formats::GgmlType::Q4_0, 18},
                           {QuantType::q4_1, formats::GgmlType::Q4_1, 20}};

// A matrix of random valid blocks, with what they are worth. All bytes occur, -128 too.
struct Stored {
  std::vector<std::byte> bytes;
  QuantMatrix matrix;
  at::Tensor values;  // [outputs, inputs] f32
};

Stored random_matrix(const TypeCase& type, int64_t outputs, int64_t inputs, uint64_t seed,
                     QuantRows fineness = QuantRows::words) {
  Stored made;
  const RandomStream stream(seed, Purpose::test);
  const auto blocks = static_cast<size_t>(outputs * inputs / 32);
  made.bytes.resize(blocks * type.block_bytes);
  for (size_t i = 0; i < made.bytes.size(); ++i) made.bytes[i] = static_cast<std::byte>(stream.below(i, 256));
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t half = 0; half < (type.type == QuantType::q4_1 ? 2u : 1u); ++half) {
      // f16 between 2^-9 and 2^-5, either sign.
      const auto bits = static_cast<uint16_t>((stream.below(b, 2) << 15) | ((6 + stream.below(b + half, 4)) << 10) |
                                              stream.below(b + 7 * half, 1024));
      std::memcpy(made.bytes.data() + b * type.block_bytes + 2 * half, &bits, sizeof bits);
    }
  }
  made.values = at::empty({outputs, inputs}, at::kFloat);
  formats::dequantize_blocks(type.stored, made.bytes,
                             {made.values.mutable_data_ptr<float>(), static_cast<size_t>(made.values.numel())});
  made.matrix = {type.type, outputs, inputs, made.bytes, {}, nullptr, fineness};
  return made;
}

at::Tensor product(const QuantLinear& linear, const at::Tensor& x) {
  RoundedRows rounded;
  rounded.round(linear.kernels(), linear.fineness(), x.const_data_ptr<float>(), x.size(0), x.size(1));
  const at::Tensor y = at::empty({x.size(0), linear.padded_outputs()}, at::kFloat);
  linear.sums(rounded, x.size(0), y.mutable_data_ptr<float>(), y.size(1));
  return y.narrow(1, 0, linear.outputs()).contiguous();
}

// x as the layer sees it: whole numbers times a scale per 32 inputs, in f64 but for the scale itself.
at::Tensor rounded(const at::Tensor& x, QuantRows fineness) {
  const double steps = fineness == QuantRows::bytes ? 127 : 32512;
  const at::Tensor blocks = x.view({x.size(0), -1, 32});
  const at::Tensor largest = std::get<0>(blocks.abs().max(-1, /*keepdim=*/true));
  at::Tensor n = at::where(largest > 0, at::round(blocks * (steps / largest)), at::zeros({1}));
  // The second byte of a word ends at -127.
  if (fineness == QuantRows::words) n = n + (n - 256 * at::floor((n + 128) / 256) == -128).to(at::kFloat);
  return (n.to(at::kDouble) * (largest / steps).to(at::kDouble)).view(x.sizes());
}

// Whole panels and rests of every kind, odd and even numbers of blocks, the widths of a real model.
const std::vector<std::pair<int64_t, int64_t>> kShapes = {{16, 32}, {64, 64}, {97, 96}, {7, 160}, {576, 1536}};

TEST(QuantLinear, EverySetHasTheBitsOfThePlainOneWhichIsTheFormula) {
  PanelArena arena;
  for (const TypeCase& type : kTypes) {
    for (const auto& [outputs, inputs] : kShapes) {
      for (const QuantRows fineness : kFinenesses) {
        const Stored stored = random_matrix(type, outputs, inputs, 1, fineness);
        const at::Tensor x = at::randn({16, inputs});
        const at::Tensor weights = stored.values.to(at::kDouble).t();
        const at::Tensor plain = product(QuantLinear({stored.matrix}, arena, *available_quant_kernels().front()), x);
        EXPECT_TRUE(test::close(plain, at::matmul(rounded(x, fineness), weights), 1e-4, 1e-5))
            << outputs << " x " << inputs;
        const double distance = fineness == QuantRows::bytes ? 2e-2 : 1e-4;
        EXPECT_TRUE(test::close_l2(plain, at::matmul(x.to(at::kDouble), weights), distance));
        for (const QuantKernels* set : available_quant_kernels()) {
          EXPECT_TRUE(test::same_bits(product(QuantLinear({stored.matrix}, arena, *set), x), plain))
              << set->name << " " << formats::ggml_layout(type.stored).name << " " << outputs << " x " << inputs;
        }
      }
    }
  }
}

TEST(QuantLinear, ARowHasTheSameBitsAmongAnyNumberOfOthers) {
  PanelArena arena;
  for (const TypeCase& type : kTypes) {
    for (const QuantRows fineness : kFinenesses) {
      const Stored stored = random_matrix(type, 200, 160, 2, fineness);
      for (const QuantKernels* set : available_quant_kernels()) {
        const QuantLinear linear({stored.matrix}, arena, *set);
        const at::Tensor x = at::randn({16, 160});
        for (int64_t rows = 1; rows <= 16; ++rows) {
          const at::Tensor together = product(linear, x.slice(0, 0, rows));
          for (int64_t row = 0; row < rows; ++row) {
            ASSERT_TRUE(test::same_bits(together.slice(0, row, row + 1), product(linear, x.slice(0, row, row + 1))))
                << set->name << " row " << row << " of " << rows;
          }
        }
      }
    }
  }
}

TEST(QuantLinear, ThreadsDoNotChangeBits) {
  PanelArena arena;
  const int threads = at::get_num_threads();
  const Stored stored = random_matrix(kTypes[0], 4096, 256, 3);
  const at::Tensor x = at::randn({6, 256});
  at::set_num_threads(1);
  const at::Tensor one = product(QuantLinear({stored.matrix}, arena), x);
  at::set_num_threads(2);
  const at::Tensor two = product(QuantLinear({stored.matrix}, arena), x);
  at::set_num_threads(threads);
  EXPECT_TRUE(test::same_bits(one, two));
}

TEST(QuantLinear, RowsOfTheFileInAnotherOrderAndStackedMatrices) {
  PanelArena arena;
  for (const TypeCase& type : kTypes) {
    const Stored a = random_matrix(type, 40, 64, 4), b = random_matrix(type, 24, 64, 5);
    const at::Tensor x = at::randn({3, 64});
    QuantMatrix turned = a.matrix;
    for (int64_t row = 0; row < 40; ++row) turned.order.push_back(39 - row);
    const at::Tensor both = product(QuantLinear({turned, b.matrix}, arena), x);
    EXPECT_TRUE(test::same_bits(both.slice(1, 0, 40), product(QuantLinear({a.matrix}, arena), x).flip(1)));
    EXPECT_TRUE(test::same_bits(both.slice(1, 40), product(QuantLinear({b.matrix}, arena), x)));
  }
}

TEST(QuantLinear, RowsOfZerosOfTinyValuesAndOfNoNumbers) {
  PanelArena arena;
  const float infinity = std::numeric_limits<float>::infinity();
  for (const TypeCase& type : kTypes) {
    const Stored stored = random_matrix(type, 33, 64, 6);
    for (const QuantKernels* set : available_quant_kernels()) {
      const QuantLinear linear({stored.matrix}, arena, *set);
      EXPECT_TRUE(test::same_bits(product(linear, at::zeros({2, 64})), at::zeros({2, 33}))) << set->name;
      EXPECT_TRUE(test::same_bits(product(linear, at::randn({2, 64}) * 1e-36), at::zeros({2, 33}))) << set->name;
      for (const float bad : {infinity, -infinity, std::nanf("")}) {
        at::Tensor x = at::randn({2, 64});
        x.mutable_data_ptr<float>()[40] = bad;
        const at::Tensor y = product(linear, x);
        EXPECT_TRUE(y[0].isnan().all().item<bool>()) << set->name;
        EXPECT_FALSE(y[1].isnan().any().item<bool>()) << set->name << ": the other row";
      }
    }
  }
}

TEST(QuantLinear, SaysWhatDoesNotFit) {
  PanelArena arena;
  const Stored a = random_matrix(kTypes[0], 16, 64, 7), b = random_matrix(kTypes[1], 16, 64, 8);
  EXPECT_THROW(QuantLinear({a.matrix, b.matrix}, arena), Error);
  EXPECT_THROW(QuantLinear({a.matrix, random_matrix(kTypes[0], 16, 64, 7, QuantRows::bytes).matrix}, arena), Error);
  QuantMatrix cut = a.matrix;
  cut.bytes = cut.bytes.first(100);
  EXPECT_THROW(QuantLinear({cut}, arena), Error);
}

}  // namespace
}  // namespace pacer::nn
