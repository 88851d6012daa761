// A whole language model as training sees it: f32 masters that are computed with directly.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/device/runtime.h"
#include "pacer/target/config.h"
#include "pacer/target/target.h"
#include "pacer/target/weights.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

// Rows of token ids, each with the label of its last input behind it.
using TokenRows = std::vector<std::vector<int64_t>>;

// The inputs of rows as one packed batch, and what follows each of them.
struct LabelledTokens {
  explicit LabelledTokens(const TokenRows& rows);
  target::TokenBatch inputs;
  at::Tensor labels;  // [T] i64
};

struct LanguageModel {
  target::ModelConfig config;
  target::WeightMap weights;

  // Sum of -log p(next) over the rows, differentiable.
  at::Tensor loss_sum(const TokenRows& rows) const;

  // config.json and model.safetensors: a Hugging Face folder.
  void write(const std::filesystem::path& folder) const;
};

// Models are made on the runtime's device. Bytes as tokens, and the sizes of the section. Matrices are drawn from N(0,
// 0.02), norms are 1; each tensor has a stream of its own.
LanguageModel new_language_model(const LanguageModelSection& section, uint64_t seed, const device::Runtime& runtime);

// From a Hugging Face folder or a .gguf file.
LanguageModel load_language_model(const std::filesystem::path& path, device::Runtime& runtime);

}  // namespace pacer::train
