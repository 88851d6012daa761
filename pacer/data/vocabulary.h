// The reduced vocabulary of a draft: the tokens that answers are made of.
#pragma once

#include <cstdint>
#include <vector>

#include "pacer/data/rows.h"

namespace pacer::data {

struct DraftVocabulary {
  std::vector<int64_t> kept_ids;     // [Dv] target ids, ascending
  std::vector<int64_t> d2t_offsets;  // [Dv] kept_ids[i] - i, the form that serving engines read
  double coverage = 0;               // share of the supervised tokens that are kept
};

// The `size` most frequent supervised tokens. Ties keep the order in which tokens were first seen: earlier row first,
// smaller id first inside a row. Where fewer than `size` tokens occur, unused ids from 0 on fill up; they count as
// last. Throws Error{usage} unless 0 < size <= vocab_size.
DraftVocabulary select_vocabulary(const std::vector<TokenRow>& rows, int64_t size, int64_t vocab_size);

// A size for a draft of these rows: twice as many tokens as their answers have, rounded up to a multiple of 512, at
// most `most`. The head's products grow with it, and a row for a token that no answer has is hardly ever right; other
// answers of the same kind have a few tokens that these lack (docs/quickstart.md has what it gains).
int64_t vocabulary_size_for(const std::vector<TokenRow>& rows, int64_t most);

}  // namespace pacer::data
