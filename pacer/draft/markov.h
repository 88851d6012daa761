// The sequential head of DSpark: a bias on the logits of a slot that depends on the token before it.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "pacer/draft/config.h"
#include "pacer/draft/weights.h"

namespace pacer::draft {

struct MarkovWeights {
  MarkovKind kind = MarkovKind::none;
  at::Tensor w2;                           // [n, r]
  at::Tensor projection, projection_bias;  // gated: [r, H + r], [r]; rnn: [3 r, 2 r + H], [3 r]
};
// Copies in `dtype`, on `device` or where the weights are.
MarkovWeights arrange_markov(const DraftConfig& config, const DraftWeights& weights, at::ScalarType dtype,
                             std::optional<c10::Device> device = std::nullopt);

// What the head makes of one slot of each row: logits gain w2 u.
struct MarkovStep {
  at::Tensor u;      // [N, r]
  at::Tensor state;  // [N, r] for the next slot (rnn), else undefined
};

// With e = W1[previous] [N, r], h = hidden [N, H]:
//   vanilla  u = e
//   gated    u = sigmoid(G [h; e] + b) * e
//   rnn      (g, c, o) = J [s; e; h] + b,  s' = sigmoid(g) * s + (1 - sigmoid(g)) * tanh(c),  u = tanh(o)
// state: of the slot before, undefined at the first (zero). Differentiable.
MarkovStep markov_step(const MarkovWeights& weights, const at::Tensor& e, const at::Tensor& h, const at::Tensor& state);

// All slots of whole blocks under teacher forcing: e [B * K, r], h [B * K, H] -> u [B * K, r].
at::Tensor markov_blocks(const MarkovWeights& weights, const at::Tensor& e, const at::Tensor& h, int64_t block_size);

}  // namespace pacer::draft
