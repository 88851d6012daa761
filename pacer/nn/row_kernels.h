// The few loops that decoding spends its time in, per instruction set, chosen once when the program starts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pacer::nn {

// How far ahead of its use a panel is fetched. Some processors keep more of their memory's lines on the way with a
// short distance, others with a long one, by a fifth and more.
enum class Fetch { near, far };

// T is float, or uint16_t for the bits of bf16.
//
// What every set promises, and what lossless decoding rests on: a row is computed in one fixed order of additions that
// depends on its own width only. So its bits are the same alone, among other rows, and on any number of threads. Two
// sets may differ in the last bits of f32 sums; one process uses one set.
//
// In bf16, values are rounded exactly where the published models round them (after every layer, rotation, score,
// probability and activation); sums are f32 throughout.
template <typename T>
struct RowKernels {
  const char* name;
  int64_t lanes;      // outputs in a panel: a multiple of 16
  int64_t most_rows;  // rows that one call of `product` takes

  // y[m][n] = sum over k of x[m][k] * w[k][n], for m < rows <= most_rows, n < lanes, both multiples of 16 where they
  // count outputs. panel: [steps][lanes] f32, or [steps][lanes][2] bf16 where a step holds two neighbouring k.
  // Rows is what the product reads of x: T, or float where bf16 is multiplied by the instructions for f32; RowOperand
  // (row_operand.h) makes one of the other. Two forms by Fetch, with the same bits.
  template <typename Rows>
  using Product = void (*)(const Rows* x, int64_t x_stride, int64_t rows, const T* panel, int64_t steps, int64_t lanes,
                           float* y, int64_t y_stride);
  Product<T> product[2];           // null where wide_product is set
  Product<float> wide_product[2];  // null where product is set
  // wide[i] = x[i]
  void (*widen)(const T* x, int64_t count, float* wide);

  // probability[i] = softmax over [begin, end) of scores * scale, zero elsewhere in [0, padded). padded: a multiple of
  // 16. work: padded floats, may be the scores themselves.
  void (*softmax)(const float* scores, int64_t begin, int64_t end, int64_t padded, float scale, float* work,
                  T* probability);

  // y = x / sqrt(mean(x^2) + epsilon) * weight; returns 1 / sqrt(...).
  float (*rms_norm)(const T* x, const T* weight, int64_t width, float epsilon, T* y);

  // y = sums + bias, bias may be null.
  void (*finish)(const float* sums, const T* bias, int64_t width, T* y);
  // y = y + (sums + bias).
  void (*add)(const float* sums, const T* bias, int64_t width, T* y);
  // y = silu(gate + gate_bias) * (up + up_bias), silu(z) = z / (1 + exp(-z)).
  void (*gated)(const float* gate, const T* gate_bias, const float* up, const T* up_bias, int64_t width, T* y);
  // One head in place: (a, b) -> (a cos - b sin, b cos + a sin) with a, b its two halves.
  void (*rotate)(T* x, const float* cos, const float* sin, int64_t half);
};

// The best set that this processor has; PACER_KERNELS=plain|avx2|avx512|avx512-bf16 asks for another one.
// Throws Error{usage} for a name that is not known, Error{device} for a set that the processor lacks.
template <typename T>
const RowKernels<T>& row_kernels();

// All sets that this processor can run, the plain one first and the best one last.
template <typename T>
std::vector<const RowKernels<T>*> available_row_kernels();

// The faster way on this machine, timed when it is first asked for: some milliseconds.
Fetch measured_fetch();

}  // namespace pacer::nn
