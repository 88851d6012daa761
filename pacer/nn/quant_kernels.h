// Products of a few rows with weights in blocks of 32 as GGUF files hold them, per instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pacer::nn {

// What a weight is worth (d and m are f16, one per output and block of 32 inputs):
//   q8_0   d * q        q signed bytes
//   q4_0   d * (q - 8)  q of four bits
//   q4_1   d * q + m    q of four bits
enum class QuantType { q8_0, q4_0, q4_1 };

constexpr int64_t kQuantBlock = 32;  // inputs that share a scale
constexpr int64_t kQuantLanes = 16;  // outputs in a panel
constexpr int64_t kQuantUnit = 2;    // blocks that lie together in a panel, so that everything is on whole lines

// How finely rows are rounded, with one scale per block of their own inputs. x is about scale * n, n = x / scale to
// nearest even.
//   bytes  scale = max|x| / 127, n a signed byte. The fastest; moves the logits of a real model by 3 to 4 per cent.
//   words  scale = max|x| / 32512, n = 256 * value + fine with |fine| <= 127 (one step is given up at -128): two bytes
//   and
//          twice the multiplications, which one row hides behind the reading of weights. Leaves 1e-4 of an error.
// A block whose largest magnitude is below 1e-30 is zero; one that holds an infinity or a NaN has a NaN scale, so that
// the sums show it.
enum class QuantRows { bytes, words };

// Per row `blocks` entries, a multiple of kQuantUnit; blocks beyond the inputs are zero.
struct RoundedView {
  int64_t blocks;
  const int8_t* values;      // [rows][blocks * 32]
  const int8_t* fine;        // the same of the second bytes; null for bytes
  const float* scales;       // [rows][blocks]
  const float* scaled_sums;  // scale * sum of the block's n
  const int32_t* minus_8;    // -8 * sum, what q4_0 takes off
  const int32_t* minus_128;  // -128 * sum: panels hold q8_0 bytes plus 128, because the instructions want one unsigned
  int64_t few_rows_ahead;    // bytes that a panel is fetched ahead for one or two rows; more compute in between: 8192
};

// What is written by `round`, for one row.
struct RoundedRow {
  int8_t* values;
  int8_t* fine;
  float* scales;
  float* scaled_sums;
  int32_t* minus_8;
  int32_t* minus_128;
};

// Inside a block sums are whole numbers and exact; over blocks they are f32, in order, by fused multiply-add. So a row
// has the same bits alone, among others, on any number of threads, and with every set.
//
// A panel is [blocks / 2] units of kQuantLanes outputs. With G = [lane][4] bytes, four neighbouring inputs per output:
//   q8_0   [2][lane] d, [2][8] G of q + 128
//   q4_0   [2][lane] d, [2][4] G; group g holds inputs 4g.. in its low half bytes, 16 + 4g.. in the high ones
//   q4_1   [2] of: [lane] d, [lane] m, [4] G
struct QuantKernels {
  const char* name;
  int64_t most_rows;  // that one call of a product takes

  void (*round)(const float* x, int64_t width, int64_t blocks, const RoundedRow& row);

  // y[m][lane] for m < rows, from row `first` of x on.
  using Product = void (*)(const RoundedView& x, int64_t first, int64_t rows, const std::byte* panel, float* y,
                           int64_t y_stride);
  Product product[3];  // by QuantType
};

constexpr int64_t quant_unit_bytes(QuantType type) {
  return kQuantLanes * kQuantUnit * (type == QuantType::q8_0 ? 34 : type == QuantType::q4_0 ? 18 : 20);
}

// The best set that this processor has; PACER_KERNELS as for row_kernels().
const QuantKernels& quant_kernels();

// All sets that this processor can run, the plain one first.
std::vector<const QuantKernels*> available_quant_kernels();

}  // namespace pacer::nn
