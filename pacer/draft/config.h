// What a block draft is: its sizes, where it taps the target and what its slots mean.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/target/config.h"

namespace pacer::draft {

enum class MarkovKind { none, vanilla, gated, rnn };

struct DraftConfig {
  std::string method = "dspark";  // "dspark" | "dflash"
  target::ModelConfig layer;      // sizes, rope and epsilon of the draft layers (hidden size = the target's)
  int64_t layers = 1;             // draft layers
  int64_t block_size = 5;         // K slots
  // true: slot k predicts anchor + k + 1 (K drafts). false: slot 0 is the anchor, slot j predicts anchor + j (K - 1
  // drafts). The wrong reading gives acceptance 1.0 without any error, so it is explicit in every file.
  bool sample_from_anchor = true;
  std::vector<int64_t> target_layer_ids;  // output ids, ascending
  int64_t target_layers = 0;
  int64_t mask_token_id = -1;
  MarkovKind markov = MarkovKind::none;
  int64_t markov_rank = 0;
  bool confidence_head = false, confidence_with_markov = false;
  std::vector<int64_t> kept_ids;                       // reduced draft vocabulary, sorted target ids; empty: all V
  std::vector<std::optional<int64_t>> sliding_window;  // per draft layer (DFlash); empty: full

  int64_t draft_vocab() const;  // Dv
  int64_t drafts_per_block() const { return sample_from_anchor ? block_size : block_size - 1; }

  // DeepSpec's config.json (serving_exports 4.1) plus Pacer's explicit fields; SpecForge's dflash_config is read too.
  static DraftConfig from_json(const Json& config, const std::string& place);
  Json to_json() const;
};

}  // namespace pacer::draft
