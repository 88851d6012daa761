// Losses over a vocabulary without a tensor of [rows, vocabulary]: logits live in a band of bounded size, and because
// the heads are frozen the gradient is taken in the same pass.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

namespace detail {
class MarkovGradient;
}

// Draft rows i = 0 .. R-1, each with the distribution q_i = softmax(hidden_i head^T + markov_m markov_out^T), m =
// markov_row[i], over the draft vocabulary of n ids, and a teacher row with p = softmax(teacher teacher_head^T) over
// all V ids.
struct VocabLossInput {
  at::Tensor hidden;                // [R, H] f32 or bf16, contiguous
  at::Tensor head;                  // [n, H] dtype of hidden, frozen
  at::Tensor markov;                // [M, r] dtype of hidden, contiguous, or undefined
  at::Tensor markov_out;            // [n, r] dtype of hidden, or undefined
  std::vector<int64_t> markov_row;  // [R] rows that share one share its product, and their gradients are added before
                                    // the products; empty: every row has its own, M = R
  at::Tensor d_markov_out;          // [n, r] f32 that the gradient of markov_out is added to; undefined: a new one

  at::Tensor teacher;                // [T, H'] f32 or bf16; undefined: cross-entropy only
  at::Tensor teacher_head;           // [V, H'] dtype of teacher, frozen
  std::vector<int64_t> teacher_row;  // [R] row of `teacher`; rows that share one share its logits
  std::vector<int64_t> kept_ids;     // [n] ascending: draft id -> teacher id; empty: the same vocabulary
  bool renormalised = false;         // p is renormalised over kept_ids; else it keeps its mass outside

  // With kept_ids, and only then: what log_sum_rows gave for the rows of `teacher`, and the kept rows of teacher_head.
  // With both, teacher logits outside kept_ids are not computed again. Either both or neither.
  at::Tensor teacher_log_sum;    // [T] f32
  at::Tensor teacher_kept_head;  // [n, H']

  std::vector<int64_t> label;   // [R] draft id, or -1: outside the draft vocabulary, no cross-entropy
  bool soft = false;            // CE = -sum over kept ids of p log q where there is a label; needs a teacher
  std::vector<float> ce_scale;  // [R] gradient = sum over r of ce_scale * d CE + l1_scale * d L1
  std::vector<float> l1_scale;  // [R]
  bool gradient = true;
};

struct VocabLossOutput {
  std::vector<float> ce;         // [R] -log q(label), or the soft one; 0 without a label
  std::vector<float> l1;         // [R] sum over all V of |q - p|, q = 0 outside kept_ids; 0 without a teacher
  std::vector<uint8_t> correct;  // [R] the label has the largest logit
  at::Tensor d_hidden;           // [R, H] dtype of hidden; undefined without gradient, as are the next two
  at::Tensor d_markov;           // [M, r] dtype of hidden; undefined without a Markov term
  at::Tensor d_markov_out;       // [n, r] f32: the input's, or a new one
};

// What is rounded: nothing in f32. In bf16 logits, softmax, losses and their sums are f32; the gradient rows are
// rounded to bf16 for the products with head and markov_out (rows that share a Markov row after they were added in
// f32), whose results (d_hidden, d_markov, and d_markov_out per group of rows) are rounded to bf16 once each.
//
// Rows are walked in bands of teacher rows: teacher logits are computed once per distinct row, the vocabulary in tiles,
// and a band's draft and teacher rows take at most tile_bytes (or one row each when that is more). The buffers stay for
// the next call. An object serves one call at a time.
class VocabLoss {
 public:
  explicit VocabLoss(int64_t tile_bytes) : tile_bytes_(tile_bytes) {}

  // Throws Error{bug} when the shapes do not fit.
  VocabLossOutput operator()(const VocabLossInput& input);

  int64_t buffer_bytes() const;  // what is held between calls

 private:
  struct Band;
  struct Layout;
  static std::vector<Band> bands(const VocabLossInput& input, int64_t floats, int64_t markovs);
  void place(const VocabLossInput& input, Band& band) const;
  static void head_products(const VocabLossInput& input, const Band& band);
  static void teacher_probabilities(const VocabLossInput& input, Band& band);
  static void draft_run(const VocabLossInput& input, const Band& band, size_t run, float* sum, VocabLossOutput& output);
  void draft_rows(const VocabLossInput& input, const Band& band, const Layout& layout, detail::MarkovGradient* shared,
                  VocabLossOutput& output) const;

  int64_t tile_bytes_;
  at::Tensor buffer_;  // flat f32, grown on demand
};

// log of the sum over all n of exp(states head^T): [T] f32 for states [T, H'] and head [n, H'], f32 or bf16. The bits
// of a bf16 row do not depend on the other rows.
at::Tensor log_sum_rows(const at::Tensor& states, const at::Tensor& head);

// The same of logits [R, n] f32, last dimension dense, that are there already: [R] f32 in host memory. The bits of a
// row do not depend on the others.
at::Tensor log_sums_of(const at::Tensor& logits);

}  // namespace pacer::nn
