#include "pacer/base/numbers.h"
#include "pacer/workflow/model_info.h"

namespace pacer::workflow {
namespace {

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string joined(const std::vector<int64_t>& numbers) {
  std::vector<std::string> parts;
  for (const int64_t number : numbers) parts.push_back(std::to_string(number));
  return joined(parts);
}

// Control characters, which a token may hold, would garble the terminal.
std::string quoted(const std::string& text) { return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string line(const std::string& label, const std::string& value) {
  constexpr size_t kLabel = 16;
  return label + std::string(label.size() < kLabel ? kLabel - label.size() : 1, ' ') + value + "\n";
}

std::string shape_lines(const target::ModelConfig& config) {
  std::string text = line("layers", std::to_string(config.layers));
  text += line("hidden", std::to_string(config.hidden_size) + ", MLP " + std::to_string(config.intermediate_size));
  text += line("attention", std::to_string(config.heads) + " query heads, " + std::to_string(config.kv_heads) +
                                " key-value heads of " + std::to_string(config.head_dim));
  text += line("vocabulary",
               std::to_string(config.vocab_size) + (config.tied_embeddings ? ", head tied to embedding" : ""));
  text += line("positions", std::to_string(config.max_position) + ", rotary " + config.rope.type + ", theta " +
                                Json(config.rope.theta).dump());
  text += line("stop ids", config.eos_ids.empty() ? "none named" : joined(config.eos_ids));
  return text;
}

std::string template_line(const std::string& name, const Part<TemplateInfo>& part) {
  const std::string label = name == "default" ? "chat template" : "template " + name;
  if (!part.value) return line(label, "not supported: " + part.problem);
  return line(label, format_count(static_cast<int64_t>(part.value->characters)) + " bytes; uses " +
                         joined(part.value->constructs));
}

}  // namespace

std::string to_text(const ModelInfo& info) {
  std::string text = line("model", info.path.string() + " (" + info.format + ")");
  if (!info.name.empty()) text += line("name", quoted(info.name));
  text += line("architecture", info.architecture);
  text += info.config.value ? shape_lines(*info.config.value)
                            : line("as a target", "not supported: " + info.config.problem);
  if (info.default_taps.value) text += line("default taps", "after layers " + joined(*info.default_taps.value));
  if (!info.default_taps.problem.empty()) text += line("default taps", "none: " + info.default_taps.problem);
  text += line("parameters", format_count(info.parameters));
  for (const auto& [type, share] : info.types) {
    text += line("stored " + type, std::to_string(share.tensors) + (share.tensors == 1 ? " tensor, " : " tensors, ") +
                                       format_bytes(share.bytes));
  }
  text +=
      line("in memory", "f32 " + format_bytes(info.weight_bytes(4)) + ", bf16 " + format_bytes(info.weight_bytes(2)));
  if (info.config.value) {
    text += line("cache per token", "f32 " + format_bytes(info.cache_bytes_per_token(4)) + ", bf16 " +
                                        format_bytes(info.cache_bytes_per_token(2)));
  }
  if (info.tokenizer.value) {
    text += line("tokenizer", format_count(info.tokenizer.value->vocab_size) + " tokens, " +
                                  std::to_string(info.tokenizer.value->special_tokens.size()) + " of them special");
  } else {
    text += line("tokenizer", info.tokenizer.problem.empty() ? "none" : "not supported: " + info.tokenizer.problem);
  }
  for (const auto& [role, token] : info.special_tokens) text += line(role, quoted(token));
  if (info.templates.empty()) text += line("chat template", "none");
  for (const auto& [name, part] : info.templates) text += template_line(name, part);
  for (const auto& [key, value] : info.licence) text += line(key, quoted(value));
  return text;
}

OrderedJson to_json(const ModelInfo& info) {
  const auto problem = [](const std::string& text) { return OrderedJson{{"problem", text}}; };
  OrderedJson json = {{"path", info.path.string()}, {"format", info.format}};
  json["name"] = info.name;
  json["architecture"] = info.architecture;
  json["config"] = info.config.value ? OrderedJson(info.config.value->to_json()) : problem(info.config.problem);
  json["default_taps"] = info.default_taps.value             ? OrderedJson(*info.default_taps.value)
                         : info.default_taps.problem.empty() ? OrderedJson(nullptr)
                                                             : problem(info.default_taps.problem);
  json["parameters"] = info.parameters;
  json["stored_bytes"] = info.stored_bytes;
  json["stored"] = OrderedJson::object();
  for (const auto& [type, share] : info.types) {
    json["stored"][type] = {{"tensors", share.tensors}, {"parameters", share.parameters}, {"bytes", share.bytes}};
  }
  json["memory_bytes"] = {{"f32", info.weight_bytes(4)}, {"bf16", info.weight_bytes(2)}};
  if (info.config.value) {
    json["cache_bytes_per_token"] = {{"f32", info.cache_bytes_per_token(4)}, {"bf16", info.cache_bytes_per_token(2)}};
  }
  json["tokenizer"] = nullptr;
  if (!info.tokenizer.problem.empty()) json["tokenizer"] = problem(info.tokenizer.problem);
  if (info.tokenizer.value) {
    OrderedJson specials = OrderedJson::array();
    for (const auto& [token, id] : info.tokenizer.value->special_tokens)
      specials.push_back({{"id", id}, {"token", token}});
    json["tokenizer"] = {{"vocab_size", info.tokenizer.value->vocab_size}, {"special_tokens", specials}};
  }
  json["special_tokens"] = info.special_tokens;
  json["chat_templates"] = OrderedJson::object();
  for (const auto& [name, part] : info.templates) {
    json["chat_templates"][name] =
        part.value ? OrderedJson{{"bytes", part.value->characters}, {"constructs", part.value->constructs}}
                   : problem(part.problem);
  }
  json["licence"] = OrderedJson::array();
  for (const auto& [key, value] : info.licence) json["licence"].push_back({{"key", key}, {"value", value}});
  return json;
}

}  // namespace pacer::workflow
