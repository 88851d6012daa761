#include "pacer/target/stored_matrices.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "pacer/formats/half.h"
#include "pacer/nn/tensor_io.h"

namespace pacer::target {
namespace {

std::optional<nn::QuantType> quant_type(formats::GgmlType type) {
  switch (type) {
    case formats::GgmlType::Q8_0:
      return nn::QuantType::q8_0;
    case formats::GgmlType::Q4_0:
      return nn::QuantType::q4_0;
    case formats::GgmlType::Q4_1:
      return nn::QuantType::q4_1;
    default:
      return std::nullopt;
  }
}

}  // namespace

nn::RowMatrix StoredMatrices::matrix(const std::string& name) const {
  const formats::GgufTensor& stored = model_->stored(name);
  const auto type = quant_type(stored.type);
  if (!type) return dense(name, stored.type == formats::GgmlType::F32 ? at::kFloat : at::kBFloat16);
  nn::QuantMatrix matrix{*type, stored.rows(), stored.width(), stored.bytes, {}, model_, fineness_};
  if (model_->interleaved(name)) {
    for (int64_t row = 0; row < matrix.outputs; ++row) matrix.order.push_back(model_->stored_row(name, row));
  }
  return matrix;
}

at::Tensor StoredMatrices::dense(const std::string& name, at::ScalarType dtype) const {
  const formats::GgufTensor& stored = model_->stored(name);
  at::Tensor tensor = at::empty(stored.shape, at::TensorOptions().dtype(dtype));
  const formats::DType type = nn::file_dtype(dtype);
  auto* bytes = static_cast<std::byte*>(tensor.mutable_data_ptr());
  const int64_t width = stored.width(), step = std::max<int64_t>(1, 16384 / width);
  const auto row_bytes = static_cast<size_t>(width) * formats::item_size(type);
  at::parallel_for(0, (stored.rows() + step - 1) / step, 4, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(step * width));
    for (int64_t row = begin * step; row < std::min(end * step, stored.rows()); row += step) {
      const int64_t count = std::min(step, stored.rows() - row);
      const std::span<float> block = std::span(values).first(static_cast<size_t>(count * width));
      model_->rows(name, row, count, block);
      formats::from_f32(block, type,
                        {bytes + static_cast<size_t>(row) * row_bytes, static_cast<size_t>(count) * row_bytes});
    }
  });
  return tensor;
}

void StoredMatrices::embedding_row(int64_t id, float* out) const {
  const std::string name = "model.embed_tokens.weight";
  model_->rows(name, id, 1, {out, static_cast<size_t>(model_->stored(name).width())});
}

}  // namespace pacer::target
