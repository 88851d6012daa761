// What a run will need, said before anything is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/data/rows.h"
#include "pacer/device/runtime.h"
#include "pacer/draft/config.h"
#include "pacer/train/recipe.h"

namespace pacer::train {

struct MemoryLine {
  std::string what;
  uint64_t bytes;
  std::string setting;   // the key that makes it smaller, empty when none does
  bool on_host = false;  // in host memory wherever the draft is trained
};

struct MemoryEstimate {
  std::vector<MemoryLine> lines;
  uint64_t total() const;
  MemoryEstimate device_part() const;  // what a device with memory of its own must hold
};

// Names and shapes of the draft's trainable tensors, as the checkpoint holds them.
int64_t draft_parameters(const draft::DraftConfig& config);

// Exact for weights, masters, gradients, moments and kept features; for activations the tensors that the backward needs
// at the longest rows, twice over for its temporaries. The libraries' own memory is counted as a constant.
// threads: of the host where it computes the draft, else 1; several compute parts of a step at the same time.
MemoryEstimate estimate_memory(const Recipe& recipe, const target::ModelConfig& target, const draft::DraftConfig& draft,
                               const std::vector<data::TokenRow>& train, const std::vector<data::TokenRow>& validation,
                               int64_t threads);

// The same for method causal_lm: exact for masters, gradients and states, for activations what the backward needs.
MemoryEstimate estimate_language_model(const Recipe& recipe, const target::ModelConfig& model);

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

// For a device whose memory ended in the middle of a run: what is resident, what the device said (it names what was
// asked for), and the largest settings to change.
Error out_of_memory(const MemoryEstimate& estimate, const device::Runtime& runtime, const std::string& device_message);

}  // namespace pacer::train
