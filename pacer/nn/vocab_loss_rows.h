// The vocabulary-wide loops of the fused loss: one row of logits at a time, in place.
#pragma once

#include <cstdint>

namespace pacer::nn::detail {

// log of a sum of exponentials, built tile by tile: sum * exp(max).
struct RunningSum {
  float max = -3.0e38f;
  float sum = 0.0f;
};

struct DraftRow {
  float* logits;          // [n] f32; overwritten by the gradient when one is asked for
  const float* bias;      // [n] added to the logits, or null
  const float* teacher;   // [n] probabilities over the draft vocabulary, or null: cross-entropy only
  float teacher_outside;  // probability that the teacher gives to tokens outside the draft vocabulary
  int64_t n;
  int64_t label;             // draft id, or -1: outside the draft vocabulary, no cross-entropy
  bool soft;                 // the cross-entropy is taken with the teacher's probabilities, not with the label
  float ce_scale, l1_scale;  // weights of the two gradients; both 0 are allowed
  bool gradient;
  bool bf16;   // the gradient is written as n bf16 at the start of the row's memory, else as n f32
  float* sum;  // [n] that the gradient is added to before it is rounded, or null
  bool first;  // `sum` is written instead
};

struct DraftRowTerms {
  float ce = 0.0f;       // -log q(label), soft: -sum_i p_i log q_i; 0 without a label
  float l1 = 0.0f;       // ||q - p||_1 over the whole vocabulary
  bool correct = false;  // no logit is larger than the label's
};

// With q = softmax(logits) and s_i = sign(q_i - p_i):
//   d CE / d z_j = q_j - [j = label],  soft: q_j sum_i p_i - p_j,   d L1 / d z_j = q_j (s_j - sum_i s_i q_i).
struct VocabRowKernels {
  void (*extend)(const float* logits, int64_t n, RunningSum& running);
  void (*probabilities)(float* logits, int64_t n, const RunningSum& of);  // in place
  float (*sum)(const float* values, int64_t n);
  DraftRowTerms (*draft)(const DraftRow& row);
  void (*narrow)(const float* values, int64_t n, uint16_t* bf16);
};

// The fastest that this processor runs; the plain ones are what the others are tested against.
const VocabRowKernels& vocab_row_kernels();
const VocabRowKernels& vocab_row_kernels_plain();
const VocabRowKernels* vocab_row_kernels_avx2();    // null: not for this processor
const VocabRowKernels* vocab_row_kernels_avx512();  // null: not for this processor

}  // namespace pacer::nn::detail
