// DSpark and DFlash at work: one pass of the block, then token after token through the sequential head.
#pragma once

#include <filesystem>
#include <memory>

#include "pacer/draft/proposer.h"
#include "pacer/draft/weights.h"
#include "pacer/target/target.h"

namespace pacer::draft {

struct ProposerOptions {
  // A proposal ends before the first slot whose confidence (sigmoid of the head's logit) is below. A slot's confidence
  // depends on earlier tokens only, so sampled text keeps its distribution. 0: off; needs a confidence head.
  double confidence_threshold = 0.0;
  // For measurements: CPU seconds that the confidence head takes are added here. Outlives the proposer.
  double* confidence_cpu_s = nullptr;
};

// Keeps keys and values of the projected context per layer and never recomputes them. start() and advance() only
// remember the features; keys and values are computed, all at once, when a proposal is asked for. The weights are held
// in the target's dtype; embedding and head are the target's own. Not thread-safe. Throws Error{usage} for a threshold
// without a confidence head.
std::unique_ptr<Proposer> make_block_proposer(const DraftFolder& draft, std::shared_ptr<const target::Target> target,
                                              const ProposerOptions& options = {});

// From a checkpoint folder (read_draft).
std::unique_ptr<Proposer> load_block_proposer(const std::filesystem::path& folder,
                                              std::shared_ptr<const target::Target> target,
                                              const ProposerOptions& options = {});

}  // namespace pacer::draft
