// The matrices of a GGUF file as decoding wants them: in the form in which they are stored.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "pacer/formats/gguf_model.h"
#include "pacer/nn/row_layer.h"

namespace pacer::target {

// Nothing is kept but the mapped file. Immutable, usable from several threads. Names are those of Hugging Face; all
// functions throw Error{format} for one that the file does not have.
class StoredMatrices {
 public:
  explicit StoredMatrices(std::shared_ptr<const formats::GgufModel> model,
                          nn::QuantRows fineness = nn::QuantRows::words)
      : model_(std::move(model)), fineness_(fineness) {}

  const formats::GgufModel& model() const { return *model_; }

  // Q8_0, Q4_0 and Q4_1 as the blocks in the file, F32 as f32; every other type as bf16, to which it is rounded where
  // it is finer.
  nn::RowMatrix matrix(const std::string& name) const;

  at::Tensor dense(const std::string& name, at::ScalarType dtype) const;  // a copy in f32 or bf16

  void embedding_row(int64_t id, float* out) const;  // H values

 private:
  std::shared_ptr<const formats::GgufModel> model_;
  nn::QuantRows fineness_;  // of the rows that blocks are multiplied with
};

}  // namespace pacer::target
