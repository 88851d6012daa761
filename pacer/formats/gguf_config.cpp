#include "pacer/formats/gguf_config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "pacer/base/error.h"
#include "pacer/base/nearest.h"
#include "pacer/formats/gguf_rope.h"

namespace pacer::formats {
namespace {

constexpr std::pair<std::string_view, std::string_view> kArchitectures[] = {
    {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"qwen3", "Qwen3ForCausalLM"}};

// Keys that are used below or that change nothing. Keys with a value only harmless at that value are checked.
constexpr std::string_view kKnownKeys[] = {"vocab_size",
                                           "context_length",
                                           "embedding_length",
                                           "block_count",
                                           "feed_forward_length",
                                           "tensor_data_layout",
                                           "use_parallel_residual",
                                           "expert_count",
                                           "expert_used_count",
                                           "attention.head_count",
                                           "attention.head_count_kv",
                                           "attention.key_length",
                                           "attention.value_length",
                                           "attention.layer_norm_rms_epsilon",
                                           "attention.causal",
                                           "attention.sliding_window",
                                           "rope.dimension_count",
                                           "rope.freq_base",
                                           "rope.scale_linear",
                                           "rope.scaling.type",
                                           "rope.scaling.factor",
                                           "rope.scaling.finetuned",
                                           "rope.scaling.original_context_length",
                                           "rope.scaling.attn_factor",
                                           "rope.scaling.yarn_ext_factor",
                                           "rope.scaling.yarn_attn_factor",
                                           "rope.scaling.yarn_beta_fast",
                                           "rope.scaling.yarn_beta_slow"};

class ConfigReader {
 public:
  explicit ConfigReader(const GgufFile& file) : file_(file), architecture_(file.text("general.architecture")) {
    const auto found = std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                                    [&](const auto& known) { return known.first == architecture_; });
    if (found == std::end(kArchitectures)) {
      refuse("general.architecture is '" + architecture_ + "'; llama, qwen2 and qwen3 are supported",
             "choose a model of one of these families");
    }
    class_name_ = found->second;
    check_keys();
  }

  Json read() const {
    const int64_t hidden = positive("embedding_length"), heads = positive("attention.head_count");
    const int64_t kv_heads = file_.has(key("attention.head_count_kv")) ? positive("attention.head_count_kv") : heads;
    const int64_t head_dim = head_dim_of(hidden, heads);
    const int64_t vocabulary = vocabulary_size();
    Json config = {{"architectures", {class_name_}},
                   {"model_type", architecture_},
                   {"hidden_act", "silu"},
                   {"vocab_size", vocabulary},
                   {"hidden_size", hidden},
                   {"num_hidden_layers", positive("block_count")},
                   {"intermediate_size", positive("feed_forward_length")},
                   {"num_attention_heads", heads},
                   {"num_key_value_heads", kv_heads},
                   {"head_dim", head_dim},
                   {"max_position_embeddings", positive("context_length")},
                   {"rms_norm_eps", tidy_float(file_.number(key("attention.layer_norm_rms_epsilon")))},
                   {"tie_word_embeddings", !file_.has_tensor("output.weight")},
                   {"use_cache", true}};
    add_biases(config);
    const Json rope = gguf_rope_parameters(file_, architecture_, head_dim);
    config["rope_parameters"] = rope;
    config["rope_theta"] = rope["rope_theta"];
    config["rope_scaling"] = nullptr;
    if (rope["rope_type"] != "default") {
      config["rope_scaling"] = rope;
      config["rope_scaling"].erase("rope_theta");
    }
    config.update(gguf_generation_config(file_));
    return config;
  }

 private:
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }

  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const {
    throw Error(ErrorKind::format, file_.place() + ": " + what, hint);
  }

  void check_keys() const {
    for (const std::string& name : file_.keys()) {
      if (!name.starts_with(architecture_ + ".")) continue;
      const std::string_view rest = std::string_view(name).substr(architecture_.size() + 1);
      if (std::find(std::begin(kKnownKeys), std::end(kKnownKeys), rest) == std::end(kKnownKeys)) {
        refuse("the metadata key '" + name + "' is not understood, and may change what the model computes",
               "use the Hugging Face folder of the model");
      }
    }
    if (file_.find_integer(key("expert_count")).value_or(0) != 0) refuse("a mixture of experts is not supported");
    if (file_.find_boolean(key("use_parallel_residual")).value_or(false))
      refuse("parallel residuals are not supported");
    if (!file_.find_boolean(key("attention.causal")).value_or(true)) refuse("attention that is not causal");
    const int64_t window = file_.find_integer(key("attention.sliding_window")).value_or(0);
    if (window != 0 && window < positive("context_length")) refuse("sliding-window attention is not supported in GGUF");
  }

  // Some files give a list with one entry per layer; only equal entries are a model of these families.
  int64_t positive(std::string_view name) const {
    const std::string full = key(name);
    int64_t value = 0;
    if (file_.value(full).type == GgufType::Array) {
      const std::vector<int64_t> list = file_.integers(full);
      if (list.empty() || std::adjacent_find(list.begin(), list.end(), std::not_equal_to<>()) != list.end()) {
        refuse("'" + full + "' differs between layers, which is not supported");
      }
      value = list.front();
    } else {
      value = file_.integer(full);
    }
    if (value < 1 || value > std::numeric_limits<int32_t>::max()) refuse("'" + full + "' is " + std::to_string(value));
    return value;
  }

  int64_t head_dim_of(int64_t hidden, int64_t heads) const {
    if (!file_.has(key("attention.key_length"))) {
      if (hidden % heads != 0) {
        refuse("embedding_length " + std::to_string(hidden) + " is no multiple of head_count " + std::to_string(heads));
      }
      return hidden / heads;
    }
    const int64_t keys = positive("attention.key_length");
    if (file_.has(key("attention.value_length")) && positive("attention.value_length") != keys) {
      refuse("keys and values of different widths are not supported");
    }
    return keys;
  }

  int64_t vocabulary_size() const {
    const int64_t rows = file_.tensor("token_embd.weight").rows();
    if (const auto stated = file_.find_integer(key("vocab_size")); stated && *stated != rows) {
      refuse("'" + key("vocab_size") + "' is " + std::to_string(*stated) + " but token_embd.weight has " +
             std::to_string(rows) + " rows");
    }
    return rows;
  }

  // config.json has one word for the four attention biases of Llama and Qwen3, so all must be there or none.
  void add_biases(Json& config) const {
    const auto all = [&](std::initializer_list<const char*> names, const char* word) {
      size_t present = 0;
      for (const char* name : names) present += file_.has_tensor("blk.0." + std::string(name) + ".bias") ? 1 : 0;
      if (present != 0 && present != names.size()) refuse(std::string("only some of the biases of ") + word);
      return present != 0;
    };
    if (architecture_ == "qwen2") return;  // always q, k and v, never the output
    config["attention_bias"] = all({"attn_q", "attn_k", "attn_v", "attn_output"}, "attention");
    const bool mlp = all({"ffn_gate", "ffn_up", "ffn_down"}, "the MLP");
    if (architecture_ == "llama") config["mlp_bias"] = mlp;
    if (architecture_ == "qwen3" && mlp) refuse("biases in the MLP of a qwen3 model");
  }

  const GgufFile& file_;
  std::string architecture_;
  std::string_view class_name_;
};

}  // namespace

double tidy_float(double value) {
  if (!std::isfinite(value)) return value;
  std::array<char, 32> buffer;
  const auto written = std::to_chars(buffer.data(), buffer.data() + buffer.size(), static_cast<float>(value));
  double result = value;
  std::from_chars(buffer.data(), written.ptr, result);
  return result;
}

Json gguf_config(const GgufFile& file) { return ConfigReader(file).read(); }

Json gguf_generation_config(const GgufFile& file) {
  Json config = Json::object();
  const auto id = [&](const char* name) {
    return file.find_integer("tokenizer.ggml." + std::string(name) + "_token_id");
  };
  std::vector<int64_t> ends;
  for (const char* name : {"eos", "eot", "eom"}) {
    const auto found = id(name);
    if (found && std::find(ends.begin(), ends.end(), *found) == ends.end()) ends.push_back(*found);
  }
  if (ends.size() == 1) config["eos_token_id"] = ends.front();
  if (ends.size() > 1) config["eos_token_id"] = ends;
  if (const auto bos = id("bos")) config["bos_token_id"] = *bos;
  if (const auto pad = id("padding")) config["pad_token_id"] = *pad;
  return config;
}

std::vector<std::pair<std::string, std::string>> gguf_provenance(const GgufFile& file) {
  constexpr std::string_view kTopics[] = {"name",    "basename",     "finetune", "size_label", "version", "author",
                                          "license", "organization", "url",      "repo_url",   "source",  "base_model"};
  std::vector<std::pair<std::string, std::string>> result;
  for (const std::string& key : file.keys()) {
    constexpr std::string_view kPrefix = "general.";
    if (!key.starts_with(kPrefix) || file.value(key).type != GgufType::String) continue;
    const std::string name = key.substr(kPrefix.size());
    const std::string topic = name.substr(0, name.find('.'));
    if (std::find(std::begin(kTopics), std::end(kTopics), topic) != std::end(kTopics)) {
      result.emplace_back(name, to_json(file.value(key)).get<std::string>());
    }
  }
  return result;
}

}  // namespace pacer::formats
