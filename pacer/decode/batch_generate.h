// Many texts at once: the way a target writes the answers that a draft is trained on.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "pacer/decode/loop.h"
#include "pacer/decode/phase_times.h"
#include "pacer/decode/sampling.h"
#include "pacer/target/target.h"

namespace pacer::decode {

struct BatchRequest {
  uint64_t sample = 0;  // which draws this text gets; make it a function of the prompt's id
  std::vector<int64_t> prompt;
};

struct BatchOptions {
  SamplingOptions sampling;
  int64_t sequences = 48;  // texts in flight
  // The hidden states that the texts were made from are handed over with them: taps, the last state, and the
  // normalisers of the logits.
  bool keep_states = false;
  target::Taps taps;
};

struct BatchResult {
  size_t request = 0;  // index into the requests
  std::vector<int64_t> tokens;
  Finish finish = Finish::length;
  // With keep_states: tapped [n, m, H] and last [n, H] of prompt and text without its last token, which the target was
  // not asked about. The same bits as target::forward_exact gives for these tokens.
  target::TargetOutput states;
  // With keep_states: log of the sum of exponentials of the logits that each token was chosen from, as
  // target::exact_log_sums gives it.
  std::vector<float> log_sums;
};

struct BatchStatistics {
  int64_t texts = 0;
  int64_t prompt_tokens = 0;           // of the prompts that were started, shared prefix included once per prompt
  int64_t computed_prompt_tokens = 0;  // that really went through the target
  int64_t shared_prefix = 0;           // tokens that all prompts begin with and that were computed once
  int64_t new_tokens = 0;
  int64_t steps = 0;  // decoding passes
  Seconds prefill, decode, sample, other;
  bool stopped = false;  // on_finished asked to stop
};

// Writes one text per request, as decode_plain would: request i is taken up in order, finished texts are handed to
// on_finished as they end (not in order) and their place goes to the next request. on_finished returns false to stop:
// unfinished texts are dropped. Draws depend on (seed, sample, position) only and prompts run in the pieces of
// target::forward_exact, so a text does not depend on its batch, in any dtype.
// Memory: one cache of at most prompt + max_new_tokens positions per text in flight, and the states when they are kept.
// Throws Error{data} naming the request for an empty prompt or one that leaves no room for an answer, before any work.
BatchStatistics generate_batch(const target::Target& target, const std::vector<BatchRequest>& requests,
                               const BatchOptions& options, const std::function<bool(const BatchResult&)>& on_finished);

// Length of what all prompts begin with, at most one less than the shortest: the last token must still be computed.
int64_t common_prefix(const std::vector<BatchRequest>& requests);

}  // namespace pacer::decode
