// The operations of this room composed of LibTorch's operators: they run on every device, and are what the kernels are
// compared with. The functions of the room come here for tensors outside of host memory, and everywhere when the user
// asks for it (pacer/device/kernels.h). Contracts are those of the headers that the functions bear their names from.
//
// What devices refuse is avoided: float64, reductions wider than tile_columns(), operators on nothing, indices of
// another type than pacer/device/indices.h names. Loops over tiles are fixed by shapes, so that equal calls round
// equally.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "pacer/nn/block_attention.h"
#include "pacer/nn/rope.h"
#include "pacer/nn/vocab_loss.h"

namespace pacer::nn::plain {

inline constexpr int64_t kTileColumns = 4096;
// Most columns of a row in one reduction on that device: kTileColumns, or fewer where an on-chip buffer holds fewer.
int64_t tile_columns(c10::Device device);

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double epsilon);
at::Tensor apply_rope(const at::Tensor& x, const RopeRows& rows);
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::optional<int64_t> window);
at::Tensor block_attention(const at::Tensor& q, const at::Tensor& k_block, const at::Tensor& v_block,
                           const at::Tensor& k_context, const at::Tensor& v_context, const BlockLayout& layout,
                           double scale, std::optional<int64_t> window);

// x [R, K], weight [N, K] -> [R, N] f32, with f32 sums in every dtype.
at::Tensor product_f32(const at::Tensor& x, const at::Tensor& weight);

VocabLossOutput vocab_loss(const VocabLossInput& input, int64_t tile_bytes);
at::Tensor log_sum_rows(const at::Tensor& states, const at::Tensor& head);

}  // namespace pacer::nn::plain
