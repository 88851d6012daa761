// Training and validation rows of a recipe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pacer/data/rows.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

struct RowSets {
  std::shared_ptr<const std::vector<data::TokenRow>> train;       // never null, never empty
  std::shared_ptr<const std::vector<data::TokenRow>> validation;  // never null, may be empty
  std::string train_fingerprint, validation_fingerprint;          // of the files' content; the second may be empty
};

// Reads the files and says what was dropped and why. Rows held out for validation are drawn by the seed and keep their
// order. Throws Error{usage} when there are not more rows than are to be held out, Error{data} as data::read_rows.
RowSets read_row_sets(const Recipe& recipe, int64_t vocab_size);

}  // namespace pacer::train
