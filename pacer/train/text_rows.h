// A text as rows of token ids for a language model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pacer/text/tokenizer.h"

namespace pacer::train {

// The text is one sequence of tokens, cut into rows of `length` inputs; the token after each input is its label, so
// neighbours share one token. The last `held_out` of the rows are for validation, a place apart from what is trained
// on.
struct TextRows {
  std::vector<std::vector<int64_t>> train, validation;  // each of length + 1 ids
  std::string fingerprint;                              // of the file's content
  int64_t tokens = 0;                                   // of the whole text
};

// tokenizer: null for one token per byte, the id is its value.
// Throws Error{data} when the file cannot be read or is too short for one row of either kind.
TextRows read_text_rows(const std::filesystem::path& file, const std::shared_ptr<const text::Tokenizer>& tokenizer,
                        int64_t length, double held_out);

}  // namespace pacer::train
