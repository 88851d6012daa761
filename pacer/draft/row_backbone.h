// A block draft at work on one sequence: its layers through the row kernels, its context kept as panels.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "pacer/draft/config.h"
#include "pacer/draft/weights.h"

namespace pacer::draft {

// The same layers as Backbone, for inference: every weight is packed once and streamed, sums are f32, and a row has the
// same bits whatever stands beside it. One sequence at a time; not thread-safe.
class RowBackbone {
 public:
  // head: [n, H] rows of the target's head in the draft's vocabulary, dtype f32 or bf16; undefined when the caller
  // takes the target's logits. device: where it computes; tensors that come and go are there. Where Pacer's own
  // kernels do not apply, the layers of Backbone in LibTorch's operators.
  static std::unique_ptr<RowBackbone> make(const DraftConfig& config, const DraftWeights& weights,
                                           const at::Tensor& head, at::ScalarType dtype, c10::Device device);
  virtual ~RowBackbone() = default;

  virtual int64_t length() const = 0;  // context rows
  virtual void clear() = 0;
  // tapped [n, m, H]: the taps of the next n tokens that the target has seen.
  virtual void append(const at::Tensor& tapped) = 0;

  // embedded [K, H]: anchor and masks behind the context -> [K, H] after the final norm. The context stays as it was.
  virtual at::Tensor block(const at::Tensor& embedded) = 0;

  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;  // [n, H] -> [n, Dv] f32; needs `head`
  // logits [Dv] f32 += W2 u, u [1, r]; needs a Markov head.
  virtual void add_markov(const at::Tensor& logits, const at::Tensor& u) const = 0;

  // The same for a greedy choice: enough of it for the first maximum to be right, whose place comes back; no other
  // logit is larger. add_markov_rest, with the same arguments, adds what was left out. Nothing comes back where nothing
  // was left out.
  virtual std::optional<int64_t> add_markov_leading(const at::Tensor& logits, const at::Tensor& u) const = 0;
  virtual void add_markov_rest(const at::Tensor& logits, const at::Tensor& u) const = 0;
};

}  // namespace pacer::draft
