// What GGUF metadata and tokenizer.json call the same: how text is cut before it is encoded, and kinds of tokens.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::text {

// tokenizer.ggml.token_type
constexpr int64_t kGgufNormal = 1, kGgufUnknown = 2, kGgufControl = 3, kGgufUserDefined = 4, kGgufUnused = 5;

// What tokenizer.ggml.pre stands for. The names are llama.cpp's, the parts those of the models' own tokenizer.json.
struct GgufPreType {
  OrderedJson normalizer;
  std::vector<OrderedJson> splits;  // before the byte-level step
  bool gpt2_pattern = false;
  bool ignore_merges = false;
  bool add_bos = false;  // unless the file says otherwise
};

const std::map<std::string, GgufPreType>& gguf_pre_types();

// Parts of tokenizer.json.
OrderedJson byte_level_json(bool add_prefix_space, bool use_regex);
OrderedJson sequence_json(const char* key, std::vector<OrderedJson> parts);
OrderedJson pre_tokenizer_json(const GgufPreType& type, bool add_prefix_space);

}  // namespace pacer::text
