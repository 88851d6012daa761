// A frozen linear layer for few rows whose weights stay in the blocks of 32 that a GGUF file holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pacer/nn/panel_arena.h"
#include "pacer/nn/quant_kernels.h"

namespace pacer::nn {

// A matrix W[outputs][inputs] in a file: rows of whole blocks.
struct QuantMatrix {
  QuantType type = QuantType::q8_0;
  int64_t outputs = 0, inputs = 0;    // inputs: a multiple of 32
  std::span<const std::byte> bytes;   // rows one after the other, as ggml lays out their type
  std::vector<int64_t> order;         // row of the file that holds row i; empty: the same
  std::shared_ptr<const void> owner;  // keeps the bytes alive
  QuantRows rows = QuantRows::words;  // how finely the layer rounds what it multiplies with
};

// Rows of activations rounded to bytes (quant_kernels.h), with room that is grown and never shrunk.
class RoundedRows {
 public:
  // x [rows, width] dense.
  void round(const QuantKernels& kernels, QuantRows fineness, const float* x, int64_t rows, int64_t width);
  RoundedView view() const;

 private:
  int64_t blocks_ = 0;
  bool words_ = false;
  std::vector<int8_t> values_, fine_;
  std::vector<float> scales_, scaled_sums_;
  std::vector<int32_t> minus_8_, minus_128_;
};

// y = W x with x rounded per 32 inputs. The bits of a row depend on that row alone: not on the rows beside it,
// the number of threads or the instruction set. Immutable, usable from several threads.
class QuantLinear {
 public:
  // Matrices of one type, width and fineness, stacked along the outputs; packed, by all threads. They are not kept.
  // Throws Error{format} when types, widths or sizes do not fit.
  QuantLinear(const std::vector<QuantMatrix>& weights, PanelArena& arena,
              const QuantKernels& kernels = quant_kernels());

  int64_t inputs() const { return inputs_; }
  int64_t outputs() const { return outputs_; }
  int64_t padded_outputs() const { return panels_count_ * kQuantLanes; }
  uint64_t bytes() const { return bytes_; }
  const QuantKernels& kernels() const { return *kernels_; }
  QuantRows fineness() const { return fineness_; }

  // x: rounded with this layer's kernels and fineness. y [rows, stride]; columns from outputs() to padded_outputs() are
  // written too.
  void sums(const RoundedRows& x, int64_t rows, float* y, int64_t stride) const;

 private:
  const QuantKernels* kernels_;
  QuantType type_;
  QuantRows fineness_;
  int64_t inputs_ = 0, outputs_ = 0;
  int64_t panels_count_ = 0, panel_bytes_ = 0;
  uint64_t bytes_ = 0;
  std::shared_ptr<std::byte> panels_;
};

}  // namespace pacer::nn
