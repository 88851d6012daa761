#include "pacer/formats/gguf_names.h"

#include <charconv>
#include <utility>

namespace pacer::formats {
namespace {

constexpr std::pair<std::string_view, std::string_view> kTop[] = {{"token_embd.weight", "model.embed_tokens.weight"},
                                                                  {"output_norm.weight", "model.norm.weight"},
                                                                  {"output.weight", "lm_head.weight"}};

// Within a layer; norms have no bias in these families.
constexpr std::pair<std::string_view, std::string_view> kNorms[] = {{"attn_norm", "input_layernorm"},
                                                                    {"ffn_norm", "post_attention_layernorm"},
                                                                    {"attn_q_norm", "self_attn.q_norm"},
                                                                    {"attn_k_norm", "self_attn.k_norm"}};
constexpr std::pair<std::string_view, std::string_view> kLinears[] = {
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"}, {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"ffn_gate", "mlp.gate_proj"},  {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

}  // namespace

std::optional<std::string> hugging_face_name(std::string_view name, int64_t layers) {
  for (const auto& [from, to] : kTop) {
    if (name == from) return std::string(to);
  }
  constexpr std::string_view kBlock = "blk.";
  if (!name.starts_with(kBlock)) return std::nullopt;
  name.remove_prefix(kBlock.size());
  const size_t dot = name.find('.');
  const std::string_view digits = name.substr(0, dot);
  int64_t layer = -1;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  const bool canonical = code == std::errc() && std::to_string(layer) == digits;  // "03" would name layer 3 twice
  if (dot == std::string_view::npos || !canonical || layer < 0 || layer >= layers) return std::nullopt;
  name.remove_prefix(dot + 1);

  const size_t kind_at = name.rfind('.');
  if (kind_at == std::string_view::npos) return std::nullopt;
  const std::string_view part = name.substr(0, kind_at), kind = name.substr(kind_at + 1);
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  for (const auto& [from, to] : kNorms) {
    if (part == from && kind == "weight") return prefix + std::string(to) + ".weight";
  }
  for (const auto& [from, to] : kLinears) {
    if (part == from && (kind == "weight" || kind == "bias")) return prefix + std::string(to) + "." + std::string(kind);
  }
  return std::nullopt;
}

std::optional<std::string> gguf_name(std::string_view name) {
  for (const auto& [to, from] : kTop) {
    if (name == from) return std::string(to);
  }
  constexpr std::string_view kPrefix = "model.layers.";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  const size_t dot = name.find('.'), kind_at = name.rfind('.');
  if (dot == std::string_view::npos || kind_at == dot) return std::nullopt;
  const std::string layer(name.substr(0, dot));
  const std::string_view part = name.substr(dot + 1, kind_at - dot - 1), kind = name.substr(kind_at + 1);
  const auto in = [&](const auto& table) -> std::optional<std::string> {
    for (const auto& [to, from] : table) {
      if (part == from) return "blk." + layer + "." + std::string(to) + "." + std::string(kind);
    }
    return std::nullopt;
  };
  const auto found = in(kNorms);
  return found ? found : in(kLinears);
}

int64_t interleaved_row(int64_t row, int64_t head_dim) {
  const int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

int64_t hugging_face_row(int64_t stored_row, int64_t head_dim) {
  const int64_t head = stored_row / head_dim, within = stored_row % head_dim;
  return head * head_dim + within % 2 * (head_dim / 2) + within / 2;
}

}  // namespace pacer::formats
