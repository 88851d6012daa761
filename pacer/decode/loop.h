// Text from a target, one sequence at a time: plainly, or with a draft that runs ahead.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/decode/pace.h"
#include "pacer/decode/phase_times.h"
#include "pacer/decode/prompt_memory.h"
#include "pacer/decode/sampling.h"
#include "pacer/decode/statistics.h"
#include "pacer/decode/verify.h"
#include "pacer/draft/proposer.h"
#include "pacer/target/target.h"

namespace pacer::decode {

// Where a token came from: `target` in plain decoding and for the token after the prompt, `drafted` when a draft was
// accepted, `corrected` where the first draft failed, `bonus` behind a proposal that passed whole (or was empty).
enum class Origin { target, drafted, corrected, bonus };
std::string_view origin_name(Origin origin);

// Why a text ended: a stop token (kept as its last token), max_new_tokens, or the target's largest position.
enum class Finish { stop, length, context };
std::string_view finish_name(Finish finish);  // "stop", "length", "context"

struct DecodeOptions {
  SamplingOptions sampling;
  uint64_t sample = 0;                // which draws this text gets; independent of the order in which texts are made
  double confidence_threshold = 0.0;  // cut proposals before the first slot below it; 0: off
  int64_t most_drafts = 0;            // of a round; 0: as many as the proposer gives
  // Decides round by round whether to draft and how far; null: the whole proposal, every round. Speculative decoding
  // only.
  Pace* pace = nullptr;
  // What the text before, of the same target, has in common with this one is not computed again; null: everything is.
  PromptMemory* memory = nullptr;
  UniformSource* uniforms = nullptr;  // null: CounterUniforms(sampling.seed, sample)
  Verifier verifier = verify;
  std::function<void(int64_t token, Origin origin)> on_token;  // called as tokens become certain
  // Sees the target's logits [V] f32 of every token of plain decoding, before it is chosen. Costs no copy.
  std::function<void(const at::Tensor& logits)> on_logits;
};

struct Decoded {
  std::vector<int64_t> tokens;  // new tokens, the stop token included
  std::vector<Origin> origins;  // one per token
  Finish finish = Finish::length;
  std::vector<RoundRecord> rounds;  // empty in plain decoding
  PhaseTimes times;
  int64_t prompt_known = 0;  // tokens of the prompt that the memory knew
  AcceptanceCounts counts() const;
};

// One token per forward pass of the target: the reference that speculative decoding is compared with.
// Throws Error{data} for an empty prompt or one that fills the target's positions.
Decoded decode_plain(const target::Target& target, const std::vector<int64_t>& prompt, const DecodeOptions& options);

// Speculative decoding. In f32 the greedy text equals decode_plain's; sampled text has the target's distribution.
// A round proposes at most what max_new_tokens leaves room for, so nothing is computed to be thrown away. With a pace,
// prompt lookup may propose beside `proposer`.
Decoded decode_speculative(const target::Target& target, draft::Proposer& proposer, const std::vector<int64_t>& prompt,
                           const DecodeOptions& options);

// The same, round by round. Target and proposer outlive the decoder.
class SpeculativeDecoder {
 public:
  SpeculativeDecoder(const target::Target& target, draft::Proposer& proposer, const std::vector<int64_t>& prompt,
                     DecodeOptions options);  // prefill and the first token
  ~SpeculativeDecoder();
  bool done() const;
  void round();  // Throws Error{bug} when done
  const Decoded& result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace pacer::decode
