// From a recipe to the draft that it asks for: sizes, taps, vocabulary, mask token.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include <c10/core/ScalarType.h>

#include "pacer/data/rows.h"
#include "pacer/draft/block_plan.h"
#include "pacer/draft/config.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

at::ScalarType parse_dtype(const std::string& name);  // "f32" | "bf16"

draft::LossOptions loss_options(const Recipe& recipe);

// Share of the supervised tokens that lie in `kept_ids` (ascending); 1 when it is empty.
double coverage(const std::vector<data::TokenRow>& rows, const std::vector<int64_t>& kept_ids);

// The id of draft.mask_token_id, or the first id of the target's table that its tokenizer does not use. Throws
// Error{usage} when there is none, or when the id occurs in the rows: a mask that is also a word teaches the draft to
// see open slots in text.
int64_t mask_token(const Recipe& recipe, const target::ModelConfig& target, const std::vector<data::TokenRow>& rows);

// rows: the training rows, for the vocabulary and the check of the mask token. Throws Error{usage} naming the key.
draft::DraftConfig draft_config(const Recipe& recipe, const target::ModelConfig& target,
                                const std::vector<data::TokenRow>& rows);

// config.json of the target without its weights: a Hugging Face folder or a .gguf file.
target::ModelConfig read_target_config(const std::filesystem::path& path);

// Identifies a target by its settings and by size, first and last megabyte of every weight file: reading all of a large
// model at each start would cost more than it protects from.
std::string target_fingerprint(const std::filesystem::path& path);

}  // namespace pacer::train
