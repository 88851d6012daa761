#include "pacer/workflow/gguf_metadata.h"

#include <cmath>
#include <numbers>
#include <string>

#include "pacer/base/error.h"
#include "pacer/base/logging.h"
#include "pacer/text/tokenizer_to_gguf.h"

namespace pacer::workflow {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  throw Error(ErrorKind::format, place + ": " + what + ", which a GGUF file cannot say",
              "keep the Hugging Face folder");
}

void add_sizes(const target::ModelConfig& config, formats::GgufMetadata& metadata) {
  const std::string at = config.architecture + ".";
  metadata.u32(at + "block_count", config.layers);
  metadata.u32(at + "context_length", config.max_position);
  metadata.u32(at + "embedding_length", config.hidden_size);
  metadata.u32(at + "feed_forward_length", config.intermediate_size);
  metadata.u32(at + "attention.head_count", config.heads);
  metadata.u32(at + "attention.head_count_kv", config.kv_heads);
  metadata.u32(at + "attention.key_length", config.head_dim);
  metadata.u32(at + "attention.value_length", config.head_dim);
  metadata.f32(at + "attention.layer_norm_rms_epsilon", config.rms_epsilon);
  metadata.u32(at + "vocab_size", config.vocab_size);
}

void add_rope(const target::ModelConfig& config, const std::string& place, formats::GgufMetadata& metadata) {
  const std::string at = config.architecture + ".rope.";
  const target::RopeConfig& rope = config.rope;
  metadata.u32(at + "dimension_count", config.head_dim);
  metadata.f32(at + "freq_base", rope.theta);
  if (rope.type == "linear" || rope.type == "yarn") {
    metadata.text(at + "scaling.type", rope.type);
    metadata.f32(at + "scaling.factor", rope.factor);
  }
  if (rope.type == "yarn") {
    if (rope.attention_factor || rope.mscale || rope.mscale_all_dim || !rope.truncate) {
      refuse(place, "YaRN with an attention factor or without truncation");
    }
    metadata.f32(at + "scaling.yarn_beta_fast", rope.beta_fast);
    metadata.f32(at + "scaling.yarn_beta_slow", rope.beta_slow);
  }
  if (rope.type == "yarn" || rope.type == "llama3") {
    metadata.u32(at + "scaling.original_context_length",
                 rope.original_max_position > 0 ? rope.original_max_position : config.max_position);
  }
}

// One id per role there; a model that stops at more tokens than the roles keeps the first ones.
void add_token_ids(const formats::ModelFolder& folder, const target::ModelConfig& config,
                   formats::GgufMetadata& metadata) {
  std::vector<int64_t> ends = config.eos_ids;
  const Json& generation = folder.generation_config();
  if (generation.contains("eos_token_id") && !generation.at("eos_token_id").is_null()) {
    const Json& ids = generation.at("eos_token_id");
    ends = ids.is_array() ? ids.get<std::vector<int64_t>>() : std::vector<int64_t>{ids.get<int64_t>()};
  }
  constexpr const char* kRoles[] = {"eos", "eot", "eom"};
  const size_t taken = metadata.has("tokenizer.ggml.eos_token_id") ? 1 : 0, room = std::size(kRoles) - taken;
  for (size_t i = 0; i < ends.size() && i < room; ++i) {
    metadata.u32("tokenizer.ggml." + std::string(kRoles[i + taken]) + "_token_id", ends[i]);
  }
  if (ends.size() > room) {
    log_warning(folder.config_place() + ": " + std::to_string(ends.size()) +
                " stop tokens; a GGUF file has room for three, the first ones are written");
  }
  // Where the tokenizer adds one by itself, its own id stands there already.
  if (config.bos_id && !metadata.has("tokenizer.ggml.bos_token_id"))
    metadata.u32("tokenizer.ggml.bos_token_id", *config.bos_id);
  if (config.pad_id) metadata.u32("tokenizer.ggml.padding_token_id", *config.pad_id);
}

}  // namespace

formats::GgufMetadata gguf_metadata(const formats::ModelFolder& folder, const target::ModelConfig& config) {
  if (!config.sliding_window.empty()) refuse(folder.config_place(), "sliding-window attention");
  formats::GgufMetadata metadata;
  metadata.text("general.architecture", config.architecture);
  metadata.text("general.type", "model");
  metadata.text("general.name", std::filesystem::weakly_canonical(folder.path()).filename().string());
  for (const auto& [key, value] : folder.licence()) {
    if (key == "license") metadata.text("general.license", value);
    if (key == "license_name") metadata.text("general.license.name", value);
    if (key == "license_link") metadata.text("general.license.link", value);
  }
  add_sizes(config, metadata);
  add_rope(config, folder.config_place(), metadata);
  if (const auto tokenizer = folder.tokenizer_json()) {
    text::add_gguf_tokenizer(*tokenizer, config.vocab_size, metadata);
    add_token_ids(folder, config, metadata);
    const auto templates = folder.chat_templates();
    if (const auto found = templates.find("default"); found != templates.end()) {
      metadata.text("tokenizer.chat_template", found->second);
    }
  } else {
    log_warning(folder.path().string() + ": no tokenizer.json, so the file will have no tokenizer");
  }
  return metadata;
}

std::vector<float> rope_divisors(const target::ModelConfig& config) {
  const target::RopeConfig& rope = config.rope;
  if (rope.type != "llama3") return {};
  const auto context = static_cast<double>(rope.original_max_position);
  std::vector<float> divisors;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double share = 2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double wavelength = 2 * std::numbers::pi * std::pow(rope.theta, share);
    const double smooth =
        (context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const double divisor = wavelength < context / rope.high_freq_factor ? 1.0
                           : wavelength > context / rope.low_freq_factor
                               ? rope.factor
                               : 1.0 / ((1.0 - smooth) / rope.factor + smooth);
    divisors.push_back(static_cast<float>(divisor));
  }
  return divisors;
}

}  // namespace pacer::workflow
