// GGUF to a Hugging Face folder that every tool of that world can read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "pacer/formats/dtype.h"

namespace pacer::formats {

struct ConvertOptions {
  DType dtype = DType::BF16;   // BF16, F16 or F32 for every tensor
  std::string tokenizer_json;  // the text of tokenizer.json, made by whoever knows tokenizers; not written when empty
  bool replace = false;        // an existing folder is replaced in one step; otherwise it is an error
  std::function<void(uint64_t done, uint64_t total)> progress;  // values written, of all
};

// Writes config.json, generation_config.json, model.safetensors, tokenizer.json, tokenizer_config.json (chat template
// and special tokens), README.md (name, licence and origin as the file states them) and manifest.json (schema
// "pacer.model"). The folder appears whole or not at all; memory is that of the largest tensor.
// Throws as GgufModel::open; Error{format} when a text in the file is not UTF-8; Error{usage} when the folder exists or
// the dtype is another; Error{resources} when it cannot be written.
void convert_gguf(const std::filesystem::path& file, const std::filesystem::path& folder,
                  const ConvertOptions& options);

}  // namespace pacer::formats
