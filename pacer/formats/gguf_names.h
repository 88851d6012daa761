// Tensor names and row orders: GGUF as llama.cpp writes it, against Hugging Face checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pacer::formats {

// "blk.3.ffn_up.weight" -> "model.layers.3.mlp.up_proj.weight". Empty for a name that has no counterpart in Llama,
// Qwen2 or Qwen3 models of `layers` layers.
std::optional<std::string> hugging_face_name(std::string_view gguf_name, int64_t layers);

// The way back; empty for a name of none of these families.
std::optional<std::string> gguf_name(std::string_view hugging_face_name);

// Llama files store the rows of q and k with the two halves of each head interleaved, because llama.cpp rotates
// neighbouring rows where Hugging Face rotates row j with row j + D/2. Row of the file that holds row `row` of the
// Hugging Face matrix:  h D + s D/2 + j  is found at  h D + 2 j + s   (head h, half s, j < D/2).
int64_t interleaved_row(int64_t row, int64_t head_dim);
int64_t hugging_face_row(int64_t stored_row, int64_t head_dim);  // the inverse

}  // namespace pacer::formats
