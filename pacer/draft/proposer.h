// A draft at work: proposes tokens after an anchor and is told what the target made of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::draft {

// How the decoder draws a token from logits [V'] f32: returns the index; writes the distribution it drew from to
// `probabilities` [V'] f32 when that is not null. Greedy: the first maximum, and no distribution is asked for.
// The same numbers serve the draw and the acceptance ratio: that is what makes sampling lossless.
using DrawToken = std::function<int64_t(const at::Tensor& logits, at::Tensor* probabilities)>;

struct Proposal {
  std::vector<int64_t> tokens;    // n target ids, n may be 0
  at::Tensor probabilities;       // [n, V] f32 over target ids, undefined when greedy (one-hot at the token)
  std::vector<float> confidence;  // logits of the confidence head, empty without one
};

// One sequence at a time. The life of a sequence:
//   start(prompt ids, features of the prompt) -> { propose(anchor) -> advance(committed tokens, their features) }*
// Features of a position are the target's hidden states of the taps there; the anchor's own are not known yet.
class Proposer {
 public:
  virtual ~Proposer() = default;
  virtual std::string name() const = 0;           // "dspark", "prompt-lookup"
  virtual std::vector<int64_t> taps() const = 0;  // target layers it needs, output ids; may be empty
  virtual int64_t max_tokens() const = 0;         // most tokens of one proposal
  // ids [P] host; tapped [P, m, H], undefined when taps() is empty. Forgets the sequence before.
  virtual void start(const std::vector<int64_t>& ids, const at::Tensor& tapped) = 0;
  // anchor: the newest committed token, not yet seen by the target. At most `limit` tokens.
  virtual Proposal propose(int64_t anchor, int64_t limit, bool greedy, const DrawToken& draw) = 0;
  // tokens: the anchor and the accepted drafts (A + 1 of them), tapped [A + 1, m, H] of their positions. Like start(),
  // it may put its work off until the next proposal: a draft that is not asked should cost nothing.
  virtual void advance(const std::vector<int64_t>& tokens, const at::Tensor& tapped) = 0;
  // Tokens whose work was put off, and doing it now: propose() would do it first anyway, but a caller that measures
  // wants to know one cost from the other.
  virtual int64_t behind() const { return 0; }
  virtual void catch_up() {}
};

}  // namespace pacer::draft
