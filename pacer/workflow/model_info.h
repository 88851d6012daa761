// What a model is, without loading its weights: for `pacer model inspect` and for reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/target/config.h"

namespace pacer::workflow {

// A part that may be missing or beyond what Pacer supports; then `problem` says why, in the words of the error.
template <typename T>
struct Part {
  std::optional<T> value;
  std::string problem;  // empty when there is a value, or when the model simply has no such part
};

struct TypeShare {
  int64_t tensors = 0, parameters = 0;
  uint64_t bytes = 0;
};

struct TokenizerInfo {
  int64_t vocab_size = 0;
  std::vector<std::pair<std::string, int64_t>> special_tokens;
};

struct TemplateInfo {
  uint64_t characters = 0;              // bytes of the source
  std::vector<std::string> constructs;  // what the template language it uses consists of
};

struct ModelInfo {
  std::filesystem::path path;
  std::string format;                       // "Hugging Face folder", "GGUF 3"
  std::string name;                         // as the model calls itself; may be empty
  std::string architecture;                 // as the file says, also when it is not supported
  Part<target::ModelConfig> config;         // a problem: the model cannot be a target
  Part<std::vector<int64_t>> default_taps;  // layer output ids
  std::map<std::string, TypeShare> types;   // by element type as stored: "BF16", "Q4_1"
  int64_t parameters = 0;                   // of all tensors; a tied head counts once
  uint64_t stored_bytes = 0;
  Part<TokenizerInfo> tokenizer;
  std::map<std::string, std::string> special_tokens;    // role -> text: "eos_token" -> "</s>"
  std::map<std::string, Part<TemplateInfo>> templates;  // by name, usually only "default"
  std::vector<std::pair<std::string, std::string>> licence;

  // Bytes of the weights in memory in an element type of `item` bytes, and of one token in the KV cache.
  uint64_t weight_bytes(uint64_t item) const { return static_cast<uint64_t>(parameters) * item; }
  uint64_t cache_bytes_per_token(uint64_t item) const;  // 0 when the model is not supported
};

// path: a Hugging Face folder or a .gguf file. Throws Error{data} or Error{format} when it cannot be read at all.
ModelInfo read_model_info(const std::filesystem::path& path);

OrderedJson to_json(const ModelInfo& info);
std::string to_text(const ModelInfo& info);  // for a person, several lines

}  // namespace pacer::workflow
