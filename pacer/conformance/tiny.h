// A target of a few thousand weights, drafts for it, and rows that something can be learnt from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pacer/draft/config.h"
#include "pacer/draft/features.h"
#include "pacer/target/target.h"
#include "pacer/train/recipe.h"

namespace pacer::conformance {

inline constexpr int64_t kTinyVocabulary = 97;

// config.json and model.safetensors of a Qwen3 with 6 layers of width 32, drawn from a fixed seed.
void write_tiny_target(const std::filesystem::path& folder);

// Token rows with a pattern in the answers: prompts of 4 to 8 tokens, answers of 8 to 20.
struct TinyRow {
  std::vector<int64_t> prompt, answer;
};
std::vector<TinyRow> tiny_rows(int64_t count);

// A draft of one layer with blocks of 4; markov: none for the method "dflash".
draft::DraftConfig tiny_draft(const target::Target& target, const std::string& method, draft::MarkovKind markov);

// Features of rows, computed by the target; ids and masks in host memory.
draft::FeatureBatch tiny_features(const target::Target& target, const std::vector<TinyRow>& rows,
                                  const std::vector<int64_t>& taps);

// A recipe over such rows, which are written into `folder`: 20 steps of 3 rows x 4 anchors, f32.
train::Recipe tiny_recipe(const std::filesystem::path& folder, const std::string& device);

}  // namespace pacer::conformance
