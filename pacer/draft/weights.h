// The tensors of a draft by their checkpoint names, and the folder they live in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "pacer/draft/config.h"
#include "pacer/target/target.h"

namespace pacer::draft {

using DraftWeights = std::map<std::string, at::Tensor>;

// What a draft learns, with shapes. Names as DeepSpec and SpecForge save them, without prefix:
//   fc.weight [H, m H], hidden_norm.weight, norm.weight [H], layers.{i}.* as in Qwen3,
//   markov_head.markov_w1.weight [V, r] (by target id: the previous token may be any),
//   markov_head.markov_w2.weight [n, r] (by draft id), gate_proj [r, H + r] or joint_proj [3 r, 2 r + H] with biases,
//   confidence_head.proj.weight [1, H (+ r)], .bias [1].
// The embedding and the head are the target's and are not here.
std::map<std::string, std::vector<int64_t>> parameter_shapes(const DraftConfig& config);

struct DraftFolder {
  DraftConfig config;
  DraftWeights weights;  // exactly the names of parameter_shapes, in the dtype asked for, contiguous
};

// Reads config.json and the safetensors of a folder. Frozen tensors in the file (embed_tokens, lm_head) must be the
// target's to within bf16 rounding; old names (logit_head.*) are accepted; d2t holds offsets: target id = i + d2t[i].
// Throws Error{format} for a tensor that is missing, unknown or of another shape, and for a draft of another target.
DraftFolder read_draft(const std::filesystem::path& folder, at::ScalarType dtype, const target::Target& target);

// Whether a configuration fits a target: hidden size, vocabulary, layers. Throws Error{format} with `place`.
void check_target(const DraftConfig& config, const target::Target& target, const std::string& place);

// Writes config.json and model.safetensors into `folder`, which is made when missing. Weights are stored in `dtype`;
// with_frozen adds embed_tokens.weight and lm_head.weight (the kept rows of a reduced vocabulary).
void write_draft(const std::filesystem::path& folder, const DraftFolder& draft, at::ScalarType dtype,
                 const target::Target* with_frozen);

// The two things that belong to a stored draft beside its weights, for writers of their own: what a reader needs and
// nobody trains (d2t of a reduced vocabulary, else nothing), and config.json. dtype: of the stored weights, f32 or
// bf16.
DraftWeights constant_tensors(const DraftConfig& config);
void write_draft_config(const std::filesystem::path& folder, const DraftConfig& config, at::ScalarType dtype);

// The rows of the target's head that the draft predicts: all of them, or a copy of the kept ones. [n, H]
at::Tensor draft_head(const DraftConfig& config, const target::Target& target);

}  // namespace pacer::draft
