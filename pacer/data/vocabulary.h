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

}  // namespace pacer::data
