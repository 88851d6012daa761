// The acceptance rule of speculative sampling (Leviathan et al. 2023; Chen et al. 2023), as a pure function.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/draft/proposer.h"

namespace pacer::decode {

// What the target says behind the anchor and behind every draft: n + 1 rows for n drafts.
struct TargetRows {
  std::vector<int64_t> greedy;  // [n + 1] first maxima, when greedy; the law is one-hot there
  at::Tensor probabilities;     // [n + 1, V] f32 on the host; undefined when greedy
};

// Uniform numbers of one round. Not read when the target is greedy.
struct VerifyDraws {
  std::vector<double> accept;  // [n]
  double token = 0.0;          // for the correction or the bonus
};

struct Verification {
  int64_t accepted = 0;      // drafts that are committed
  int64_t accepted_raw = 0;  // drafts that passed, before a stop token among them shortened the prefix
  int64_t judged = 0;        // drafts that count as proposed: n, or up to and with the stop token
  int64_t next_token = -1;   // correction (accepted < n) or bonus; -1 when a stop token ended the text
  bool stopped = false;      // an accepted draft is a stop token
};

// Draft i is accepted iff u_i < min(1, p_i(x_i) / max(q_i(x_i), 1e-8)); the first failure ends the prefix. The token
// behind the prefix is drawn from residual(p, q) at the failure, from p when all passed. A stop token inside the prefix
// ends text and prefix there, without a further token. With a greedy target: exact match, then the target's token.
//
// The committed tokens are distributed exactly as if each had been drawn from the target, whatever q is, provided the
// proposal's tokens were drawn from the q that is given here. proposal.probabilities undefined: one-hot at the tokens.
// Throws Error{bug} when the shapes do not fit.
Verification verify(const TargetRows& target, const draft::Proposal& proposal, const VerifyDraws& draws,
                    std::span<const int64_t> stop_ids);

// Decoders take the rule as a value, so that tests can show that a wrong rule is caught.
using Verifier = std::function<Verification(const TargetRows&, const draft::Proposal&, const VerifyDraws&,
                                            std::span<const int64_t> stop_ids)>;

// max(p - q, 0) divided by its sum; p itself when that sum is at most 1e-8. In f64.
std::vector<double> residual(std::span<const float> p, std::span<const float> q);
// The same for a q that is one-hot at `token`.
std::vector<double> residual(std::span<const float> p, int64_t token);

}  // namespace pacer::decode
