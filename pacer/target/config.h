// What a config.json (or GGUF metadata) says about a Llama-like model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::target {

struct RopeConfig {
  std::string type = "default";  // default | linear | llama3 | yarn
  double theta = 10000.0;
  double factor = 1.0;
  double low_freq_factor = 1.0, high_freq_factor = 4.0;            // llama3
  int64_t original_max_position = 0;                               // llama3, yarn; 0: not given
  double beta_fast = 32.0, beta_slow = 1.0;                        // yarn
  std::optional<double> attention_factor, mscale, mscale_all_dim;  // yarn
  bool truncate = true;                                            // yarn
};

struct ModelConfig {
  std::string architecture;  // "llama" | "qwen2" | "qwen3"
  int64_t vocab_size = 0, hidden_size = 0, layers = 0, intermediate_size = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t max_position = 0;
  double rms_epsilon = 1e-6;
  RopeConfig rope;
  bool tied_embeddings = false;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;
  std::vector<std::optional<int64_t>> sliding_window;  // per layer; empty: full attention
  std::vector<int64_t> eos_ids;                        // generation_config first, then config
  std::optional<int64_t> bos_id, pad_id;

  // Accepts the current spelling (rope_parameters, dtype) and the older one (rope_theta, rope_scaling, torch_dtype).
  // place: path for messages. Throws Error{format} naming the field, its value and what is supported.
  static ModelConfig from_json(const Json& config, const std::string& place);
  Json to_json() const;  // Hugging Face spelling, both rope forms
};

// Default tap layers: `count` output ids (1 + i * (layers - 4) / (count - 1), rounded half to even); three below 32
// layers, else five; one is layers / 2. Throws Error{usage} when the model is too shallow for that many.
std::vector<int64_t> default_taps(int64_t layers, std::optional<int64_t> count = std::nullopt);

}  // namespace pacer::target
