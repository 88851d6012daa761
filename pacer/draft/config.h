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
  bool reduced() const { return !kept_ids.empty(); }
  int64_t drafts_per_block() const { return sample_from_anchor ? block_size : block_size - 1; }

  // A draft for this target: its layer sizes with q and k norms, full attention, one layer. taps: target_layer_ids;
  // empty: the target's default ones, which a very shallow target does not have (Error{format}). The caller sets the
  // rest, of which mask_token_id has no usable default.
  static DraftConfig for_target(const target::ModelConfig& target, std::vector<int64_t> taps = {});

  // Reads DeepSpec's config.json, SpecForge's (fields in dflash_config) and what to_json writes. `sample_from_anchor`
  // and `capture` win over what the architecture name implies; a field that stands twice with two values is an error.
  // kept_ids come from the weight file (d2t): config.json only states how many there are (draft_vocab_size).
  // Throws Error{format} naming place, field, value and what is allowed.
  static DraftConfig from_json(const Json& config, const std::string& place, std::vector<int64_t> kept_ids = {});
  // DeepSpec's layout with `sample_from_anchor` and `capture {convention, ids}` spelled out.
  Json to_json() const;
  // What from_json checks across fields; for configurations made in code. Throws Error{format} with `place`.
  void validate(const std::string& place) const;
};

}  // namespace pacer::draft
