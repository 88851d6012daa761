// A tiny target and random rows for whole training runs in a second.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pacer/data/rows.h"
#include "pacer/train/recipe.h"

namespace pacer::train::test {

std::filesystem::path tiny_target();  // 7 layers, vocabulary 97, width 32

// `count` rows with 4 to 8 prompt tokens and 8 to 20 answer tokens below id 90, drawn from `seed`. Answers repeat a
// pattern, so there is something to learn.
std::vector<data::TokenRow> tiny_rows(int64_t count, uint64_t seed = 1);
void write_rows(const std::filesystem::path& file, const std::vector<data::TokenRow>& rows);

// A recipe for them in `folder`, which gets rows.jsonl: DSpark with one layer, 3 rows x 4 anchors a step.
Recipe tiny_recipe(const std::filesystem::path& folder, int64_t rows = 30);

}  // namespace pacer::train::test
