// Causal attention of one sequence by library products: for prompts and training features.
#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

namespace pacer::nn {

// The last T of L positions look back: query i sees keys [max(0, p - window + 1), p] with p = L - T + i.
//
//   q        [T, heads, D]     f32 or bf16; heads and rows may be strided, D dense
//   k, v     [L, kv_heads, D]  L >= T; kv_heads divides heads, query head h reads key head h / (heads / kv_heads)
//   window   how many positions a query sees, its own included; none: all
//   returns  [T, heads, D]     softmax(q k^T / sqrt(D)) v, dtype of q
//
// Not differentiable. A mask is made only where the causal triangle is not the whole story (an older prefix, or a
// window that cuts), for one block of queries at a time. Throws Error{bug} when the shapes do not fit.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            std::optional<int64_t> window = std::nullopt);

}  // namespace pacer::nn
