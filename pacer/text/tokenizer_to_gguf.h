// The tokenizer of a Hugging Face folder as GGUF metadata; tokenizer_gguf.cpp is the way back.
#pragma once

#include <cstdint>
#include <filesystem>

#include "pacer/formats/gguf_write.h"

namespace pacer::text {

// Sets tokenizer.ggml.model, pre, tokens, token_type, merges, add_bos_token and add_eos_token from tokenizer.json.
// Entries up to `vocab_size`, the rows of the embedding, that have no token are marked as unused.
// Throws Error{format}: not a byte-level BPE, a way of cutting text that llama.cpp has no name for, special tokens
// other than one at the beginning and one at the end, more tokens than vocab_size.
void add_gguf_tokenizer(const std::filesystem::path& tokenizer_json, int64_t vocab_size,
                        formats::GgufMetadata& metadata);

}  // namespace pacer::text
