// Which blocks of a batch are trained and with what weight: integers on the host, no torch work.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "pacer/draft/config.h"

namespace pacer::draft {

struct LossOptions {
  double ce_alpha = 0.1, l1_alpha = 0.9, confidence_alpha = 1.0;
  double decay_gamma = 4.0;           // weight exp(-d / gamma) of draft d = 0, 1, ...; <= 0: no decay
  std::string decay_kind = "dspark";  // "dpace", "dpace-cumulative-confidence-only", "dpace-continuation-value-only"
  double dpace_alpha = 0.5;
  bool soft_labels = false;           // CE with the teacher's probabilities: -sum over the draft vocabulary of p log q
  bool renormalised_teacher = false;  // p renormalised over the draft vocabulary, for comparison only
  int64_t tile_bytes = 0;             // f32 rows of logits that exist at once; 0: logits_bytes() chooses
  // Blocks whose activations exist at once: a step is cut into parts, whose gradients are added in f32. 0: as many as
  // have 1120 slots, or 512 where a hidden row takes more than 1,280 bytes; products lose little at that many rows.
  int64_t anchors_at_once = 0;
  // Parts of kExactPart blocks, whatever anchors_at_once allows: its value then changes no bit.
  bool fixed_parts = false;
  static constexpr int64_t kExactPart = 32;

  // D-PACE: weights follow the confidence of the draft itself and replace the decay.
  bool dynamic_weights() const { return decay_kind != "dspark"; }
};

// Parts of a step that are computed at the same time, a thread each: as many as there are threads, up to four, where
// each has 256 slots or more of the step's and the head, of so many bytes, is not larger than a cache: with larger ones
// lanes were not faster. Otherwise 1, and the threads share the operations. 1 for fixed parts.
int64_t training_lanes(const LossOptions& options, int64_t slots, int64_t head_bytes, int64_t threads);

// Blocks of one part of a plan with `blocks` blocks of `block_size` slots, whose hidden rows take `row_bytes` each; the
// parts of all lanes exist at once. Throws Error{usage} when fixed parts are larger than what may exist at once.
int64_t blocks_of_a_part(const LossOptions& options, int64_t blocks, int64_t block_size, int64_t row_bytes,
                         int64_t lanes);

// Bytes of the logits that exist at once in each lane, over `vocabulary` columns: tile_bytes for all lanes together, or
// what 330 rows take, 64 to 192 MiB for each. The head is laid out anew for every band of rows, so a large vocabulary
// needs the memory for as many rows as a small one.
int64_t logits_bytes(const LossOptions& options, int64_t vocabulary, int64_t lanes);

// Random draws of a training step: a function of these numbers and the sample id, never of call order.
struct StepRandom {
  uint64_t seed = 0;
  uint64_t step = 0;
};

// What a plan is divided by, in whole numbers: they add over micro-batches and ranks without rounding.
struct SlotCounts {
  std::vector<int64_t> supervised;  // [K] slots by their place in the block
  std::vector<int64_t> kept;        // [K] those whose label is inside the draft vocabulary
  int64_t sequences = 0;
};

// A pure function of (ids, supervised, options, random): the denominators of an optimizer window are known from it
// before any backward. Blocks without a supervised slot cannot occur; unused ones are not here at all.
struct BlockPlan {
  int64_t block_size = 0;
  std::vector<int64_t> sequence;      // [B] sequence of each live block
  std::vector<int64_t> anchor;        // [B] position of the anchor inside its sequence, ascending per sequence
  std::vector<uint64_t> sample_id;    // [B]
  std::vector<int64_t> label_row;     // [B*K] packed row of the label, -1 where unsupervised
  std::vector<int64_t> teacher_row;   // [B*K] packed row whose target state predicts the label (label_row - 1), -1
  std::vector<int64_t> previous_row;  // [B*K] packed row of the teacher-forced previous token
  std::vector<float> weight;          // [B*K] 0 where unsupervised; 1 where supervised with dynamic weights
  double weight_sum = 0;              // D of the L1 and confidence terms
  double ce_weight_sum = 0;           // D of the cross-entropy: labels inside the draft vocabulary only; with dynamic
                                      // weights the number of sequences, as D-PACE divides
  SlotCounts counts;
  int64_t blocks() const { return static_cast<int64_t>(anchor.size()); }
};

// The two denominators as BlockPlan has them, from counts of any number of plans: the same bits whichever plans the
// slots came from. weight_sum, ce_weight_sum of plans, which add rounded numbers, agree with them to rounding.
struct Denominators {
  double all = 0, ce = 0;
};
Denominators denominators(const DraftConfig& config, const LossOptions& options, const SlotCounts& counts);

// Packed sequences on the host: sequence s owns tokens [starts[s], starts[s + 1]).
struct PackedTokens {
  std::span<const int64_t> ids;          // [T]
  std::span<const uint8_t> supervised;   // [T]
  std::span<const int64_t> starts;       // S + 1
  std::span<const uint64_t> sample_ids;  // [S]
};

// Positions p of one sequence where p and p + 1 are both supervised, ascending. The first is the first answer token,
// as when decoding the first anchor is a token that the target has just produced.
std::vector<int64_t> anchor_candidates(std::span<const uint8_t> supervised);

// The `count` candidates with the smallest keys (all of them when there are fewer), ascending. With independent uniform
// keys: a uniform choice without replacement. Equal keys: the smaller position first.
std::vector<int64_t> choose_anchors(std::span<const int64_t> candidates, int64_t count,
                                    const std::function<double(int64_t position)>& key);

// Labels, teachers, previous tokens and weights of blocks at these anchors (ascending, one list per sequence).
//   slots predict anchor + k + 1: a slot is supervised while all labels up to its own are (a contiguous prefix)
//   slots predict anchor + j:     slot 0 is not; slot j is when its own label is
// Throws Error{bug} for anchors that are not candidates.
BlockPlan plan_blocks(const DraftConfig& config, const LossOptions& options, const PackedTokens& tokens,
                      const std::vector<std::vector<int64_t>>& anchors);

// Anchors drawn with keys RandomStream(seed, Purpose::anchors, step, sample id), indexed by position.
BlockPlan plan_blocks(const DraftConfig& config, const LossOptions& options, const PackedTokens& tokens,
                      int64_t anchors_per_sequence, const StepRandom& random);

}  // namespace pacer::draft
