// From logits to tokens: the distribution, the draw, and where the uniform numbers come from.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::decode {

struct SamplingOptions {
  double temperature = 0.0;  // below 1e-5: greedy
  int64_t top_k = 0;         // keep the k likeliest tokens; 0: all
  double top_p = 1.0;        // keep the smallest set of likeliest tokens whose share reaches top_p; 1: all
  // Tokens of the tokenizer. Models are padded to round sizes: rows from here on stand for no token and are never
  // written, however likely. 0: every row is a token.
  int64_t vocabulary = 0;
  std::vector<int64_t> stop_ids;
  int64_t max_new_tokens = 256;
  uint64_t seed = 0;

  bool greedy() const { return temperature < 1e-5; }
  // Throws Error{usage} naming the option, its value and what is allowed.
  void check() const;
};

// What a uniform number decides.
enum class Draw { draft, accept, token };

// Uniform numbers in [0, 1) for one sequence. A round is named by the position of its anchor (the newest committed
// token), a slot counts from 0 behind it. No (anchor, slot, draw) is ever asked twice, so no draw that was seen in a
// rejected proposal can come back in a later round: a decoder that adapts to what it saw stays lossless.
class UniformSource {
 public:
  virtual ~UniformSource() = default;
  virtual double uniform(int64_t anchor, int64_t slot, Draw draw) = 0;
};

// A function of (seed, sample, anchor, slot, draw) and of nothing else; see pacer/base/random.h.
class CounterUniforms : public UniformSource {
 public:
  CounterUniforms(uint64_t seed, uint64_t sample) : seed_(seed), sample_(sample) {}
  double uniform(int64_t anchor, int64_t slot, Draw draw) override;

 private:
  uint64_t seed_, sample_;
};

// logits [n, V] or [V] without the columns of padding; a view. Others than rows of the target's V pass as they are.
at::Tensor without_padding(const at::Tensor& logits, int64_t target_rows, const SamplingOptions& options);

// First maximum of every row: the lowest id wins a tie. logits [n, V] or [V] f32.
// Throws Error{data} when a row holds NaN: then no token is the likeliest.
std::vector<int64_t> greedy_tokens(const at::Tensor& logits);

// Softmax of logits / temperature in f32, cut to top_k, then to top_p, and divided by what is left. Equal
// probabilities at a cut keep the lower id. One-hot at the first maximum when greedy.
//   logits [n, V] or [V] f32; returns the same shape, f32, on the host, contiguous
at::Tensor distribution(const at::Tensor& logits, const SamplingOptions& options);

// Inverse of the cumulative distribution in f64: the number of cumulative shares that are <= u, a share being the
// weight divided by the sum of all weights. Never a token of weight 0. weights: not negative, not all zero.
int64_t draw_token(std::span<const float> weights, double u);
int64_t draw_token(std::span<const double> weights, double u);

}  // namespace pacer::decode
