// Layers of matrices that are stored in different ways.
#include "pacer/nn/row_layer.h"

#include <cstring>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>

#include "pacer/base/error.h"
#include "tests/support/tensors.h"

namespace pacer::nn {
namespace {

// Blocks of q8_0 with values 0..126 and the scale 1: exactly representable, so that a dense twin exists.
struct Bytes {
  std::vector<std::byte> bytes;
  at::Tensor values;
  QuantMatrix matrix;
};

Bytes whole_numbers(int64_t outputs, int64_t inputs) {
  Bytes made;
  made.values = at::empty({outputs, inputs});
  for (int64_t i = 0; i < outputs * inputs; ++i) {
    if (i % 32 == 0) made.bytes.push_back(std::byte{0x00}), made.bytes.push_back(std::byte{0x3c});  // 1 as f16
    const auto value = static_cast<int8_t>(i * 37 % 127);
    made.bytes.push_back(static_cast<std::byte>(value));
    made.values.mutable_data_ptr<float>()[i] = value;
  }
  made.matrix = {QuantType::q8_0, outputs, inputs, made.bytes, {}, nullptr};
  return made;
}

at::Tensor product(const RowLayer<float>& layer, const at::Tensor& x) {
  const at::Tensor y = at::empty({x.size(0), layer.stride()});
  layer.sums(x.const_data_ptr<float>(), x.size(0), y.mutable_data_ptr<float>());
  return y.narrow(1, 0, layer.outputs()).contiguous();
}

TEST(RowLayer, StacksMatricesOfEveryKind) {
  PanelArena arena;
  const Bytes blocks = whole_numbers(23, 64), more = whole_numbers(40, 64);
  const at::Tensor wide = at::randn({19, 64}), narrow = at::randn({50, 64}).to(at::kBFloat16);
  const at::Tensor x = at::randn({9, 64});
  // Different kinds beside each other, none a multiple of sixteen wide; and two neighbours of one kind.
  const std::vector<RowMatrix> weights = {blocks.matrix, wide, narrow, more.matrix, more.matrix, wide};
  const RowLayer<float> layer(weights, arena);
  EXPECT_EQ(layer.outputs(), 23 + 19 + 50 + 40 + 40 + 19);
  EXPECT_EQ(layer.inputs(), 64);
  const at::Tensor all = product(layer, x);
  int64_t first = 0;
  for (const RowMatrix& weight : weights) {
    const RowLayer<float> alone({weight}, arena);
    EXPECT_TRUE(test::same_bits(all.narrow(1, first, alone.outputs()), product(alone, x))) << first;
    first += alone.outputs();
  }
  const at::Tensor dense = at::cat({blocks.values, wide, narrow.to(at::kFloat), more.values, more.values, wide});
  EXPECT_TRUE(test::close_l2(all, at::matmul(x, dense.t()), 1e-2));
}

TEST(RowLayer, RowsKeepTheirBitsAmongOthers) {
  PanelArena arena;
  const Bytes blocks = whole_numbers(23, 64);
  const RowLayer<float> layer({blocks.matrix, at::randn({50, 64}).to(at::kBFloat16), at::randn({19, 64})}, arena);
  const at::Tensor x = at::randn({16, 64});
  for (int64_t rows = 1; rows <= 16; ++rows) {
    const at::Tensor together = product(layer, x.slice(0, 0, rows));
    for (int64_t row = 0; row < rows; ++row) {
      ASSERT_TRUE(test::same_bits(together.slice(0, row, row + 1), product(layer, x.slice(0, row, row + 1))));
    }
  }
}

TEST(RowLayer, SaysWhatDoesNotFit) {
  PanelArena arena;
  const Bytes blocks = whole_numbers(23, 64);
  EXPECT_THROW(RowLayer<float>({blocks.matrix, at::ones({4, 32})}, arena), Error);
  EXPECT_THROW(RowLayer<uint16_t>({blocks.matrix}, arena), Error);
  EXPECT_THROW(RowLayer<float>({at::ones({4, 32}, at::kDouble)}, arena), Error);
}

}  // namespace
}  // namespace pacer::nn
