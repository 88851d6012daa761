// A GGUF file as a Hugging Face folder, tokenizer included.
#pragma once

#include <filesystem>
#include <string>

#include "pacer/formats/dtype.h"

namespace pacer::workflow {

struct ConvertedModel {
  uint64_t tensors = 0, parameters = 0, bytes = 0;  // bytes: of model.safetensors
};

// "bf16", "f16" or "f32". Throws Error{usage} for another word.
formats::DType parse_weight_dtype(const std::string& word);

// As formats::convert_gguf, with the tokenizer of the file; shows progress. Throws also when the tokenizer is not
// supported, before anything is written.
ConvertedModel convert_model(const std::filesystem::path& file, const std::filesystem::path& folder,
                             formats::DType dtype, bool replace);

}  // namespace pacer::workflow
