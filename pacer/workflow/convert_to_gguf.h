// A model as a GGUF file: from a Hugging Face folder, or from another GGUF file with other element types.
#pragma once

#include <filesystem>
#include <string>

#include "pacer/formats/ggml_types.h"
#include "pacer/workflow/convert_model.h"

namespace pacer::workflow {

// "q8_0", "bf16" or "f32". Throws Error{usage} for another word.
formats::GgmlType parse_gguf_type(const std::string& word);

// Matrices are written in `type`, norms, biases and matrices whose rows are no multiple of its blocks in F32. The
// metadata of a GGUF file is carried over, tokenizer and chat template included; that of a folder is made of
// config.json, tokenizer.json and the chat template, and rows of q and k of Llama models are interleaved as the format
// wants them (formats/gguf_names.h). Shows progress; the file appears whole or not at all. Throws Error{usage} when
// `out` exists and replace is not set; Error{format} for a model or a setting that is not supported or that GGUF has no
// word for (sliding windows, YaRN factors), Error{resources} as write_file.
ConvertedModel convert_to_gguf(const std::filesystem::path& model, const std::filesystem::path& out,
                               formats::GgmlType type, bool replace);

}  // namespace pacer::workflow
