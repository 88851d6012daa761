// tokenizer.json in two parts: the two large tables, read into compact form, and everything else as JSON.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "pacer/base/json.h"
#include "pacer/text/bpe.h"
#include "pacer/text/tokenizer.h"

namespace pacer::text {

struct TokenizerSpec {
  OrderedJson frame;  // tokenizer.json without model.vocab and model.merges
  Vocabulary vocabulary;
  MergeList merges;
  std::string place;  // the file, for errors
};

// A string with room behind it, as read_file gives it, is not copied. Throws Error{format} with line and column, or
// with the JSON path of what is wrong.
TokenizerSpec read_tokenizer_json(const std::string& json, const std::string& place);

// The whole file again.
std::string write_tokenizer_json(const OrderedJson& frame, const Vocabulary& vocabulary, const MergeList& merges);

// Throws Error{format} naming the JSON path of what is not supported or does not fit.
std::shared_ptr<const Tokenizer> build_tokenizer(TokenizerSpec spec);

}  // namespace pacer::text
