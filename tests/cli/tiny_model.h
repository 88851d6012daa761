// A whole model that answers in milliseconds: what commands need, without fetching anything.
#pragma once

#include <filesystem>

#include "pacer/base/json.h"

namespace pacer::cli {

struct TinyModel {
  int64_t layers = 6, hidden = 32, rows = 264;  // rows of the embedding; the tokenizer has 257 tokens
  int64_t max_position = 1024;
  uint64_t seed = 1;          // of the weights
  bool not_a_number = false;  // in one weight of layer 3
};

// Writes a Hugging Face folder: Llama, f32, a tokenizer with a token for every byte and <|end|>, a ChatML template.
void write_tiny_model(const std::filesystem::path& folder, const TinyModel& model = {});

// tokenizer.json of it, with `extra` added tokens "<extra_0>", ... behind <|end|>.
OrderedJson byte_tokenizer(int extra = 0);

// A GGUF file of the same kind, with a tokenizer of six tokens.
void write_tiny_gguf(const std::filesystem::path& file);

// Some prompts, one of them with two turns.
void write_prompts(const std::filesystem::path& file);

// Rows of random bytes for training, as `pacer data generate` writes them.
void write_training_rows(const std::filesystem::path& file, int count);

// A recipe of `steps` steps in which nothing is large; "overrides" is put behind as further YAML lines.
void write_tiny_recipe(const std::filesystem::path& file, const std::filesystem::path& model,
                       const std::filesystem::path& rows, int steps);

}  // namespace pacer::cli
