#include "pacer/nn/quant_linear.h"

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/Parallel.h>

#include "pacer/base/error.h"
#include "pacer/nn/row_kernels.h"

namespace pacer::nn {
namespace {

// Fewer bytes than this are not worth waking another thread for.
constexpr int64_t kBytesPerTask = 256 << 10;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Of one block in the file: f16 scales first, then the values.
constexpr int64_t scale_bytes(QuantType type) { return type == QuantType::q4_1 ? 4 : 2; }
constexpr int64_t value_bytes(QuantType type) { return type == QuantType::q8_0 ? 32 : 16; }
constexpr int64_t block_bytes(QuantType type) { return scale_bytes(type) + value_bytes(type); }

// Rows of the file into one panel; null for outputs that only pad it.
void pack_panel(QuantType type, const std::array<const std::byte*, kQuantLanes>& rows, int64_t blocks,
                std::byte* panel) {
  const int64_t groups = value_bytes(type) / 4, group_bytes = 4 * kQuantLanes, half_bytes = 2 * kQuantLanes;
  // q8_0 bytes plus 128: the top bit of every byte turned.
  const uint32_t turn = type == QuantType::q8_0 ? 0x80808080u : 0u;
  for (int64_t b = 0; b < blocks; ++b) {
    std::byte* unit = panel + b / kQuantUnit * quant_unit_bytes(type);
    const int64_t in_unit = b % kQuantUnit;
    std::byte *scales, *values;
    if (type == QuantType::q4_1) {
      scales = unit + in_unit * (2 * half_bytes + groups * group_bytes);
      values = scales + 2 * half_bytes;
    } else {
      scales = unit + in_unit * half_bytes;
      values = unit + kQuantUnit * half_bytes + in_unit * groups * group_bytes;
    }
    for (int64_t lane = 0; lane < kQuantLanes; ++lane) {
      if (rows[static_cast<size_t>(lane)] == nullptr) continue;  // the arena's memory is zero
      const std::byte* block = rows[static_cast<size_t>(lane)] + b * block_bytes(type);
      std::memcpy(scales + 2 * lane, block, 2);
      if (type == QuantType::q4_1) std::memcpy(scales + half_bytes + 2 * lane, block + 2, 2);
      const std::byte* from = block + scale_bytes(type);
      for (int64_t g = 0; g < groups; ++g) {
        uint32_t four;
        std::memcpy(&four, from + 4 * g, sizeof four);
        four ^= turn;
        std::memcpy(values + g * group_bytes + 4 * lane, &four, sizeof four);
      }
    }
  }
}

template <typename T>
T* room(std::vector<T>& vector, int64_t count) {
  if (vector.size() < static_cast<size_t>(count)) vector.resize(static_cast<size_t>(count));
  return vector.data();
}

}  // namespace

void RoundedRows::round(const QuantKernels& kernels, QuantRows fineness, const float* x, int64_t rows, int64_t width) {
  words_ = fineness == QuantRows::words;
  blocks_ = round_up(width, kQuantBlock * kQuantUnit) / kQuantBlock;
  const int64_t count = rows * blocks_;
  const RoundedRow to{room(values_, count * kQuantBlock),
                      words_ ? room(fine_, count * kQuantBlock) : nullptr,
                      room(scales_, count),
                      room(scaled_sums_, count),
                      room(minus_8_, count),
                      room(minus_128_, count)};
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row * blocks_;
    kernels.round(x + row * width, width, blocks_,
                  {to.values + at * kQuantBlock, to.fine == nullptr ? nullptr : to.fine + at * kQuantBlock,
                   to.scales + at, to.scaled_sums + at, to.minus_8 + at, to.minus_128 + at});
  }
}

RoundedView RoundedRows::view() const {
  return {.blocks = blocks_,
          .values = values_.data(),
          .fine = words_ ? fine_.data() : nullptr,
          .scales = scales_.data(),
          .scaled_sums = scaled_sums_.data(),
          .minus_8 = minus_8_.data(),
          .minus_128 = minus_128_.data(),
          .few_rows_ahead = measured_fetch() == Fetch::near ? 1024 : 8192};
}

QuantLinear::QuantLinear(const std::vector<QuantMatrix>& weights, PanelArena& arena, const QuantKernels& kernels)
    : kernels_(&kernels), type_(weights.at(0).type), fineness_(weights.at(0).rows), inputs_(weights.at(0).inputs) {
  std::vector<const std::byte*> rows;
  for (const QuantMatrix& weight : weights) {
    const int64_t row_bytes = weight.inputs / kQuantBlock * block_bytes(weight.type);
    if (weight.type != type_ || weight.rows != fineness_ || weight.inputs != inputs_ || inputs_ % kQuantBlock != 0 ||
        weight.bytes.size() != static_cast<size_t>(weight.outputs * row_bytes) ||
        (!weight.order.empty() && weight.order.size() != static_cast<size_t>(weight.outputs))) {
      throw Error(ErrorKind::format, "QuantLinear: " + std::to_string(weight.outputs) + " rows of " +
                                         std::to_string(weight.inputs) + " inputs in " +
                                         std::to_string(weight.bytes.size()) + " bytes beside layers of " +
                                         std::to_string(inputs_) + " inputs");
    }
    for (int64_t row = 0; row < weight.outputs; ++row) {
      const int64_t stored = weight.order.empty() ? row : weight.order[static_cast<size_t>(row)];
      rows.push_back(weight.bytes.data() + stored * row_bytes);
    }
  }
  outputs_ = static_cast<int64_t>(rows.size());
  const int64_t blocks = inputs_ / kQuantBlock;
  panels_count_ = round_up(outputs_, kQuantLanes) / kQuantLanes;
  panel_bytes_ = round_up(blocks, kQuantUnit) / kQuantUnit * quant_unit_bytes(type_);
  bytes_ = static_cast<uint64_t>(panels_count_ * panel_bytes_);
  panels_ = arena.take(bytes_);
  std::byte* panels = panels_.get();
  rows.resize(static_cast<size_t>(panels_count_ * kQuantLanes), nullptr);
  at::parallel_for(0, panels_count_, 1 + kBytesPerTask / panel_bytes_, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      std::array<const std::byte*, kQuantLanes> lanes;
      std::copy_n(rows.begin() + p * kQuantLanes, kQuantLanes, lanes.begin());
      pack_panel(type_, lanes, blocks, panels + p * panel_bytes_);
    }
  });
}

void QuantLinear::sums(const RoundedRows& x, int64_t rows, float* y, int64_t stride) const {
  if (rows == 0) return;
  const RoundedView view = x.view();
  const QuantKernels::Product product = kernels_->product[static_cast<size_t>(type_)];
  const int64_t groups = (rows + kernels_->most_rows - 1) / kernels_->most_rows, group = (rows + groups - 1) / groups;
  const std::byte* panels = panels_.get();
  at::parallel_for(0, panels_count_, 1 + kBytesPerTask / panel_bytes_, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      for (int64_t m = 0; m < rows; m += group) {
        product(view, m, std::min(group, rows - m), panels + p * panel_bytes_, y + m * stride + p * kQuantLanes,
                stride);
      }
    }
  });
}

}  // namespace pacer::nn
