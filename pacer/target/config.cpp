#include "pacer/target/config.h"

#include <algorithm>
#include <cmath>

namespace pacer::target {
namespace {

constexpr int64_t kMostLayers = 10'000;

[[noreturn]] void refuse(const std::string& place, const std::string& what, const std::string& hint = {}) {
  throw Error(ErrorKind::format, place + ": " + what, hint);
}

// One object of the file; a field that is absent and one that is null mean the same, as in the reference.
class Fields {
 public:
  Fields(const Json& object, std::string place, std::string path)
      : object_(object), place_(std::move(place)), path_(std::move(path)) {
    if (!object.is_object()) refuse(place_, path_ + " is not an object");
  }

  bool has(const char* name) const { return object_.contains(name) && !object_.at(name).is_null(); }
  const Json& at(const char* name) const {
    if (!has(name)) refuse(place_, "field " + path_ + name + " is missing", "a complete config.json is needed");
    return object_.at(name);
  }
  std::string text(const char* name) const {
    if (!at(name).is_string()) wrong(name, "a string");
    return at(name).get<std::string>();
  }
  // No model comes near the bounds; without them a short file could ask for any amount of memory.
  int64_t integer(const char* name, int64_t least = 1, int64_t most = int64_t{1} << 31) const {
    const Json& value = at(name);
    const bool good = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(most)
                                                 : value.is_number_integer() && value.get<int64_t>() <= most;
    if (!good || value.get<int64_t>() < least) {
      wrong(name, "an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value.get<int64_t>();
  }
  double positive(const char* name) const {
    const Json& value = at(name);
    if (!value.is_number() || !(value.get<double>() > 0) || !std::isfinite(value.get<double>())) {
      wrong(name, "a positive number");
    }
    return value.get<double>();
  }
  double positive_or(const char* name, double absent) const { return has(name) ? positive(name) : absent; }
  std::optional<double> maybe_positive(const char* name) const {
    return has(name) ? std::optional(positive(name)) : std::nullopt;
  }
  bool flag_or(const char* name, bool absent) const {
    if (!has(name)) return absent;
    if (!at(name).is_boolean()) wrong(name, "true or false");
    return at(name).get<bool>();
  }
  [[noreturn]] void wrong(const char* name, const std::string& allowed) const {
    refuse(place_, "field " + path_ + name + " is " + object_.at(name).dump() + "; expected " + allowed,
           "the file is damaged, or the model is of a kind that is not supported");
  }

 private:
  const Json& object_;
  std::string place_, path_;
};

std::string architecture_of(const Fields& fields, const std::string& place) {
  static constexpr std::pair<const char*, const char*> kKnown[] = {
      {"LlamaForCausalLM", "llama"}, {"Qwen2ForCausalLM", "qwen2"}, {"Qwen3ForCausalLM", "qwen3"}};
  const std::string type = fields.text("model_type");
  for (const auto& [name, architecture] : kKnown) {
    if (type != architecture) continue;
    // A classifier or a multi-modal wrapper carries the same model_type but other heads.
    if (fields.has("architectures")) {
      const Json& list = fields.at("architectures");
      if (!list.is_array() || std::find(list.begin(), list.end(), Json(name)) == list.end()) {
        refuse(place, "field architectures is " + list.dump() + "; expected it to hold \"" + name + "\"");
      }
    }
    return architecture;
  }
  refuse(place, "model_type \"" + type + "\" is not supported; allowed: llama, qwen2, qwen3",
         "choose a model of one of these families");
}

// `rope` holds the settings without theta in the older spelling and with it in the current one.
RopeConfig rope_of(const Fields& top, const std::string& place) {
  RopeConfig rope;
  const bool current = top.has("rope_parameters");
  const char* key = current ? "rope_parameters" : "rope_scaling";
  if (!current && !top.has("rope_scaling")) {
    rope.theta = top.positive("rope_theta");
    return rope;
  }
  const Fields fields(top.at(key), place, std::string(key) + ".");
  rope.theta = fields.has("rope_theta") ? fields.positive("rope_theta") : top.positive("rope_theta");
  if (fields.has("rope_theta") && top.has("rope_theta") && top.positive("rope_theta") != rope.theta) {
    refuse(place,
           "rope_theta is " + top.at("rope_theta").dump() + " but " + key + ".rope_theta is " +
               fields.at("rope_theta").dump(),
           "keep one of the two");
  }
  rope.type = fields.has("rope_type") ? fields.text("rope_type") : fields.text("type");
  if (rope.type == "default") return rope;
  if (rope.type != "linear" && rope.type != "llama3" && rope.type != "yarn") {
    refuse(place, std::string(key) + ".rope_type \"" + rope.type +
                      "\" is not supported; allowed: default, linear, llama3, yarn");
  }
  rope.factor = fields.positive("factor");
  if (rope.type == "llama3") {
    rope.low_freq_factor = fields.positive("low_freq_factor");
    rope.high_freq_factor = fields.positive("high_freq_factor");
    if (rope.high_freq_factor <= rope.low_freq_factor) fields.wrong("high_freq_factor", "more than low_freq_factor");
    rope.original_max_position = fields.integer("original_max_position_embeddings");
  }
  if (rope.type == "yarn") {
    if (fields.has("original_max_position_embeddings")) {
      rope.original_max_position = fields.integer("original_max_position_embeddings");
    }
    rope.beta_fast = fields.positive_or("beta_fast", rope.beta_fast);
    rope.beta_slow = fields.positive_or("beta_slow", rope.beta_slow);
    rope.attention_factor = fields.maybe_positive("attention_factor");
    rope.mscale = fields.maybe_positive("mscale");
    rope.mscale_all_dim = fields.maybe_positive("mscale_all_dim");
    rope.truncate = fields.flag_or("truncate", true);
  }
  return rope;
}

// Qwen's files name the sliding layers (layer_types), or say from which layer on they slide (max_window_layers).
std::vector<std::optional<int64_t>> sliding_of(const Fields& top, const ModelConfig& config) {
  std::vector<std::optional<int64_t>> windows(static_cast<size_t>(config.layers));
  const bool sliding = top.flag_or("use_sliding_window", false) && top.has("sliding_window");
  const std::optional<int64_t> window = sliding ? std::optional(top.integer("sliding_window")) : std::nullopt;
  if (top.has("layer_types")) {
    const Json& types = top.at("layer_types");
    if (!types.is_array() || types.size() != windows.size()) {
      top.wrong("layer_types", "a list of " + std::to_string(config.layers) + " names");
    }
    for (size_t i = 0; i < windows.size(); ++i) {
      if (types[i] == "full_attention") continue;
      if (types[i] != "sliding_attention" || !window) {
        top.wrong("layer_types", window ? "full_attention or sliding_attention in every place"
                                        : "full_attention in every place, because no sliding_window is in use");
      }
      windows[i] = window;
    }
  } else if (window) {
    const int64_t first = top.integer("max_window_layers", 0);
    for (int64_t i = first; i < config.layers; ++i) windows[static_cast<size_t>(i)] = window;
  }
  const auto slides = [](const auto& layer) { return layer.has_value(); };
  if (std::none_of(windows.begin(), windows.end(), slides)) windows.clear();
  return windows;
}

std::vector<int64_t> id_list(const Fields& fields, const char* name) {
  if (!fields.has(name)) return {};
  const Json& value = fields.at(name);
  std::vector<int64_t> ids;
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0) fields.wrong(name, "a token id or a list of token ids");
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

std::optional<int64_t> one_id(const Fields& fields, const char* name) {
  const std::vector<int64_t> ids = id_list(fields, name);
  if (ids.size() > 1) fields.wrong(name, "one token id");
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

Json rope_to_json(const RopeConfig& rope) {
  Json json = {{"rope_type", rope.type}};
  if (rope.type == "default") return json;
  json["factor"] = rope.factor;
  if (rope.original_max_position > 0) json["original_max_position_embeddings"] = rope.original_max_position;
  if (rope.type == "llama3") {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.type == "yarn") {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["truncate"] = rope.truncate;
    if (rope.attention_factor) json["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) json["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) json["mscale_all_dim"] = *rope.mscale_all_dim;
  }
  return json;
}

}  // namespace

ModelConfig ModelConfig::from_json(const Json& json, const std::string& place) {
  const Fields top(json, place, "");
  ModelConfig config;
  config.architecture = architecture_of(top, place);
  if (top.has("quantization_config")) {
    refuse(place, "quantization_config is set; quantised safetensors are not supported",
           "use the original weights, or a .gguf file");
  }
  if (top.text("hidden_act") != "silu") top.wrong("hidden_act", "\"silu\"");
  config.vocab_size = top.integer("vocab_size");
  config.hidden_size = top.integer("hidden_size");
  config.layers = top.integer("num_hidden_layers", 1, kMostLayers);
  config.intermediate_size = top.integer("intermediate_size");
  config.heads = top.integer("num_attention_heads");
  // Llama files from before grouped queries have no such field and mean one key head per query head.
  const bool ungrouped = config.architecture == "llama" && !top.has("num_key_value_heads");
  config.kv_heads = ungrouped ? config.heads : top.integer("num_key_value_heads");
  if (config.heads % config.kv_heads != 0) top.wrong("num_key_value_heads", "a divisor of num_attention_heads");
  if (top.has("head_dim")) {
    config.head_dim = top.integer("head_dim");
  } else {
    if (config.architecture == "qwen3") top.at("head_dim");  // not hidden_size / heads there: no default
    if (config.hidden_size % config.heads != 0) top.wrong("hidden_size", "a multiple of num_attention_heads");
    config.head_dim = config.hidden_size / config.heads;
  }
  if (config.head_dim % 2 != 0) refuse(place, "head_dim " + std::to_string(config.head_dim) + " is odd");
  if (top.has("partial_rotary_factor") && top.positive("partial_rotary_factor") != 1.0) {
    top.wrong("partial_rotary_factor", "1.0");
  }
  config.max_position = top.integer("max_position_embeddings");
  config.rms_epsilon = top.positive("rms_norm_eps");
  config.rope = rope_of(top, place);
  config.tied_embeddings = top.flag_or("tie_word_embeddings", false);
  const bool attention_bias = top.flag_or("attention_bias", false);
  config.qkv_bias = config.architecture == "qwen2" || attention_bias;
  config.o_bias = config.architecture != "qwen2" && attention_bias;
  config.mlp_bias = config.architecture == "llama" && top.flag_or("mlp_bias", false);
  config.qk_norm = config.architecture == "qwen3";
  if (config.architecture != "llama") config.sliding_window = sliding_of(top, config);
  config.eos_ids = id_list(top, "eos_token_id");
  config.bos_id = one_id(top, "bos_token_id");
  config.pad_id = one_id(top, "pad_token_id");
  return config;
}

Json ModelConfig::to_json() const {
  const bool qwen = architecture != "llama";
  const char* name = !qwen ? "LlamaForCausalLM" : architecture == "qwen2" ? "Qwen2ForCausalLM" : "Qwen3ForCausalLM";
  Json json = {{"architectures", {name}},
               {"model_type", architecture},
               {"hidden_act", "silu"},
               {"vocab_size", vocab_size},
               {"hidden_size", hidden_size},
               {"num_hidden_layers", layers},
               {"intermediate_size", intermediate_size},
               {"num_attention_heads", heads},
               {"num_key_value_heads", kv_heads},
               {"head_dim", head_dim},
               {"max_position_embeddings", max_position},
               {"rms_norm_eps", rms_epsilon},
               {"rope_theta", rope.theta},
               {"rope_scaling", nullptr},
               {"tie_word_embeddings", tied_embeddings},
               {"use_cache", true}};
  if (architecture != "qwen2") json["attention_bias"] = qkv_bias;
  if (!qwen) json["mlp_bias"] = mlp_bias;
  json["rope_parameters"] = rope_to_json(rope);
  json["rope_parameters"]["rope_theta"] = rope.theta;
  if (rope.type != "default") json["rope_scaling"] = rope_to_json(rope);
  if (qwen) {
    json["use_sliding_window"] = !sliding_window.empty();
    json["sliding_window"] = nullptr;
    json["max_window_layers"] = layers;
    Json types = Json::array();
    for (int64_t i = layers - 1; i >= 0; --i) {
      const int64_t window = sliding_window.empty() ? 0 : sliding_window[static_cast<size_t>(i)].value_or(0);
      types.insert(types.begin(), window > 0 ? "sliding_attention" : "full_attention");
      if (window > 0) json["sliding_window"] = window, json["max_window_layers"] = i;
    }
    json["layer_types"] = types;
  }
  if (eos_ids.size() == 1) json["eos_token_id"] = eos_ids.front();
  if (eos_ids.size() > 1) json["eos_token_id"] = eos_ids;
  if (bos_id) json["bos_token_id"] = *bos_id;
  if (pad_id) json["pad_token_id"] = *pad_id;
  return json;
}

std::vector<int64_t> default_taps(int64_t layers, std::optional<int64_t> count) {
  const int64_t n = count.value_or(layers < 32 ? 3 : 5);
  if (n < 1) throw Error(ErrorKind::usage, "taps: " + std::to_string(n) + " layers asked for; at least one is needed");
  std::vector<int64_t> taps;
  for (int64_t i = 0; i < n; ++i) {
    // An integer form of 1 + i (layers - 4) / (n - 1), so that halves are exact and go to the even side.
    if (n == 1) {
      taps.push_back(layers / 2);
      break;
    }
    const int64_t scaled = i * (layers - 4), whole = scaled / (n - 1), rest = scaled % (n - 1);
    const int64_t below = 1 + whole;
    const bool up = 2 * rest > n - 1 || (2 * rest == n - 1 && below % 2 != 0);
    taps.push_back(below + (up ? 1 : 0));
  }
  const bool ascending = std::adjacent_find(taps.begin(), taps.end(), std::greater_equal<>()) == taps.end();
  if (layers < 2 || !ascending || taps.front() < 0 || taps.back() > layers - 2) {
    throw Error(ErrorKind::usage,
                "a model of " + std::to_string(layers) + " layers has no " + std::to_string(n) + " default tap layers",
                "give the layers explicitly, or ask for fewer");
  }
  return taps;
}

}  // namespace pacer::target
