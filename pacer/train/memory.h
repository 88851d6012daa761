// What a run will need, said before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pacer/data/rows.h"
#include "pacer/device/runtime.h"
#include "pacer/draft/config.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

struct MemoryLine {
  std::string what;
  uint64_t bytes;
  std::string setting;  // the key that makes it smaller, empty when none does
};

struct MemoryEstimate {
  std::vector<MemoryLine> lines;
  uint64_t total() const;
};

// Names and shapes of the draft's trainable tensors, as the checkpoint holds them.
int64_t draft_parameters(const draft::DraftConfig& config);

// Exact for weights, masters, gradients, moments and kept features; for activations the tensors that the backward needs
// at the longest rows, twice over for its temporaries. The libraries' own memory is counted as a constant.
MemoryEstimate estimate_memory(const Recipe& recipe, const target::ModelConfig& target, const draft::DraftConfig& draft,
                               const std::vector<data::TokenRow>& train, const std::vector<data::TokenRow>& validation);

// How the features' memory is divided: validation rows take what they need up to a quarter, training rows the rest.
struct FeatureMemory {
  uint64_t train = 0, validation = 0;                // allowed
  bool train_fits = false, validation_fits = false;  // all features at once
};
FeatureMemory feature_memory(const Recipe& recipe, const target::ModelConfig& target, size_t taps,
                             const std::vector<data::TokenRow>& train, const std::vector<data::TokenRow>& validation);

// Logs the estimate, one line. Throws Error{resources} when it exceeds what is available, with the largest settings to
// change.
void require_memory(const MemoryEstimate& estimate, const device::MemoryInfo& memory);

}  // namespace pacer::train
