#include "pacer/draft/weights.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/from_blob.h>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/json.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/indices.h"
#include "pacer/nn/tensor_io.h"

namespace pacer::draft {
namespace {

constexpr const char* kEmbedding = "embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kMap = "d2t";

std::string shape_text(const std::vector<int64_t>& shape) { return c10::str(at::IntArrayRef(shape)); }

// SpecForge once nested the heads.
std::string current_name(const std::string& name) {
  constexpr std::string_view kOld = "logit_head.";
  return name.starts_with(kOld) ? name.substr(kOld.size()) : name;
}

at::Tensor ids_tensor(const std::vector<int64_t>& ids) {
  return at::from_blob(const_cast<int64_t*>(ids.data()), {static_cast<int64_t>(ids.size())}, at::kLong).clone();
}

std::vector<int64_t> kept_ids(const std::shared_ptr<formats::TensorSource>& source) {
  if (!source->has(kMap)) return {};
  const at::Tensor offsets = nn::load_tensor(source, kMap, at::kLong).contiguous();
  const int64_t* offset = offsets.const_data_ptr<int64_t>();
  std::vector<int64_t> ids(static_cast<size_t>(offsets.numel()));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) + offset[i];
  return ids;
}

void check_frozen(const std::shared_ptr<formats::TensorSource>& source, const std::string& name,
                  const at::Tensor& own) {
  const std::vector<int64_t> shape = source->tensor(name).shape;
  if (at::IntArrayRef(shape) != own.sizes()) {
    throw Error(ErrorKind::format,
                source->place() + ": " + name + " has shape " + shape_text(shape) + ", the target's has " +
                    c10::str(own.sizes()),
                "the draft was trained for another target");
  }
  // Row blocks: a whole vocabulary in f32 twice would be the largest thing in memory.
  for (int64_t begin = 0; begin < own.size(0); begin += 4096) {
    const int64_t end = std::min(begin + 4096, own.size(0));
    const at::Tensor theirs = nn::load_tensor(source, name, own.scalar_type()).slice(0, begin, end).to(at::kFloat);
    const at::Tensor ours = device::to_host(own.slice(0, begin, end)).to(at::kFloat);
    if (!(theirs - ours).abs().le(ours.abs() * 0.0079 + 1e-6).all().item<bool>()) {
      throw Error(ErrorKind::format, source->place() + ": " + name + " differs from the target's",
                  "the draft was trained for another target, or for another revision of it");
    }
  }
}

}  // namespace

std::map<std::string, std::vector<int64_t>> parameter_shapes(const DraftConfig& config) {
  const target::ModelConfig& layer = config.layer;
  const int64_t hidden = layer.hidden_size, width = layer.head_dim, rank = config.markov_rank;
  const int64_t queries = layer.heads * width, keys = layer.kv_heads * width;
  std::map<std::string, std::vector<int64_t>> shapes;
  shapes["fc.weight"] = {hidden, hidden * static_cast<int64_t>(config.target_layer_ids.size())};
  shapes["hidden_norm.weight"] = shapes["norm.weight"] = {hidden};
  for (int64_t i = 0; i < config.layers; ++i) {
    const std::string at = "layers." + std::to_string(i) + ".";
    const auto matrix = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
      shapes[at + name + ".weight"] = {out, in};
      if (bias) shapes[at + name + ".bias"] = {out};
    };
    shapes[at + "input_layernorm.weight"] = shapes[at + "post_attention_layernorm.weight"] = {hidden};
    matrix("self_attn.q_proj", queries, hidden, layer.qkv_bias);
    matrix("self_attn.k_proj", keys, hidden, layer.qkv_bias);
    matrix("self_attn.v_proj", keys, hidden, layer.qkv_bias);
    matrix("self_attn.o_proj", hidden, queries, layer.o_bias);
    shapes[at + "self_attn.q_norm.weight"] = shapes[at + "self_attn.k_norm.weight"] = {width};
    matrix("mlp.gate_proj", layer.intermediate_size, hidden, false);
    matrix("mlp.up_proj", layer.intermediate_size, hidden, false);
    matrix("mlp.down_proj", hidden, layer.intermediate_size, false);
  }
  if (config.markov != MarkovKind::none) {
    shapes["markov_head.markov_w1.weight"] = {layer.vocab_size, rank};
    shapes["markov_head.markov_w2.weight"] = {config.draft_vocab(), rank};
  }
  if (config.markov == MarkovKind::gated) {
    shapes["markov_head.gate_proj.weight"] = {rank, hidden + rank};
    shapes["markov_head.gate_proj.bias"] = {rank};
  }
  if (config.markov == MarkovKind::rnn) {
    shapes["markov_head.joint_proj.weight"] = {3 * rank, 2 * rank + hidden};
    shapes["markov_head.joint_proj.bias"] = {3 * rank};
  }
  if (config.confidence_head) {
    shapes["confidence_head.proj.weight"] = {1, hidden + (config.confidence_with_markov ? rank : 0)};
    shapes["confidence_head.proj.bias"] = {1};
  }
  return shapes;
}

void check_target(const DraftConfig& config, const target::Target& target, const std::string& place) {
  const target::ModelConfig& model = target.config();
  const auto same = [&place](const char* what, int64_t draft, int64_t of_target) {
    if (draft == of_target) return;
    throw Error(ErrorKind::format,
                place + ": the draft's " + what + " is " + std::to_string(draft) + ", the target's " +
                    std::to_string(of_target),
                "a draft works with the target that it was trained for only");
  };
  same("hidden_size", config.layer.hidden_size, model.hidden_size);
  same("vocab_size", config.layer.vocab_size, model.vocab_size);
  same("num_target_layers", config.target_layers, model.layers);
}

at::Tensor draft_head(const DraftConfig& config, const target::Target& target) {
  const at::Tensor head = target.head_weight();
  return config.reduced() ? head.index_select(0, device::as_indices(ids_tensor(config.kept_ids), head.device())) : head;
}

DraftFolder read_draft(const std::filesystem::path& folder, at::ScalarType dtype, const target::Target& target) {
  const std::filesystem::path config_path = folder / "config.json";
  const std::shared_ptr<formats::TensorSource> source = formats::open_safetensors(folder);
  DraftFolder draft;
  draft.config = DraftConfig::from_json(read_json(config_path), config_path.string(), kept_ids(source));
  check_target(draft.config, target, config_path.string());

  const auto shapes = parameter_shapes(draft.config);
  for (const std::string& stored : source->names()) {
    const std::string name = current_name(stored);
    if (name == kMap || name == "t2d") continue;
    if (name == kEmbedding) {
      check_frozen(source, stored, target.embedding_weight());
    } else if (name == kHead) {
      check_frozen(source, stored, draft_head(draft.config, target));
    } else if (const auto expected = shapes.find(name); expected == shapes.end()) {
      throw Error(ErrorKind::format, source->place() + ": tensor " + stored + " has no place in this draft",
                  "config.json and the weights are of different drafts, or the draft has parts that are not supported");
    } else if (const std::vector<int64_t> shape = source->tensor(stored).shape; shape != expected->second) {
      throw Error(ErrorKind::format,
                  source->place() + ": tensor " + stored + " has shape " + shape_text(shape) + ", expected " +
                      shape_text(expected->second),
                  "config.json and the weights are of different drafts");
    } else {
      draft.weights[name] = nn::load_tensor(source, stored, dtype);
      if (!std::isfinite(draft.weights[name].sum(at::kDouble).item<double>())) {
        throw Error(ErrorKind::format, source->place() + ": tensor " + stored + " holds values that are not finite",
                    "the draft is damaged or diverged: fetch it again, or take an earlier checkpoint of the run");
      }
    }
  }
  for (const auto& [name, shape] : shapes) {
    if (!draft.weights.contains(name)) source->tensor(name);  // its error lists the nearest names
  }
  return draft;
}

void write_draft(const std::filesystem::path& folder, const DraftFolder& draft, at::ScalarType dtype,
                 const target::Target* with_frozen) {
  DraftWeights stored;  // sorted by name, as every writer of this layout does
  const auto storable = [&](const at::Tensor& tensor) {
    return device::to_host(tensor.detach().to(dtype)).contiguous();
  };
  for (const auto& [name, weight] : draft.weights) stored[name] = storable(weight);
  if (with_frozen != nullptr) {
    stored[kEmbedding] = storable(with_frozen->embedding_weight());
    stored[kHead] = storable(draft_head(draft.config, *with_frozen));
  }
  for (const auto& [name, constant] : constant_tensors(draft.config)) stored[name] = constant;
  std::vector<formats::NamedTensor> tensors;
  for (const auto& [name, tensor] : stored) tensors.push_back({name, nn::view_of(tensor)});
  std::filesystem::create_directories(folder);
  formats::write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  write_draft_config(folder, draft.config, dtype);
}

DraftWeights constant_tensors(const DraftConfig& config) {
  if (!config.reduced()) return {};
  return {{kMap, ids_tensor(config.kept_ids) - at::arange(config.draft_vocab(), at::kLong)}};
}

void write_draft_config(const std::filesystem::path& folder, const DraftConfig& config, at::ScalarType dtype) {
  Json json = config.to_json();
  json["dtype"] = dtype == at::kFloat ? "float32" : "bfloat16";
  write_file(folder / "config.json", json.dump(2) + "\n");
}

}  // namespace pacer::draft
