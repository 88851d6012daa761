#include "pacer/train/language_model.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include "pacer/base/files.h"
#include "pacer/base/random.h"
#include "pacer/device/device_memory.h"
#include "pacer/device/indices.h"
#include "pacer/device/kernels.h"
#include "pacer/nn/tensor_io.h"
#include "pacer/target/autograd_forward.h"
#include "pacer/train/draft_setup.h"
#include "pacer/train/head_loss.h"

namespace pacer::train {
namespace {

constexpr int64_t kBytes = 256;

target::ModelConfig new_config(const LanguageModelSection& section) {
  target::ModelConfig config;
  config.architecture = "llama";
  config.vocab_size = kBytes;
  config.layers = section.layers, config.hidden_size = section.hidden, config.intermediate_size = section.intermediate;
  config.heads = section.heads, config.kv_heads = section.kv_heads;
  config.head_dim = section.hidden / section.heads;
  config.max_position = section.length;
  return config;
}

target::WeightMap new_weights(const target::ModelConfig& config, uint64_t seed) {
  target::WeightMap weights;
  uint64_t index = 0;
  for (const auto& [name, shape] : target::weight_shapes(config)) {
    at::Tensor weight = at::ones(shape, at::kFloat);
    if (!name.ends_with("norm.weight")) {
      const RandomStream random(seed, Purpose::initial_weights, 0, index);
      random.fill_normal(weight.mutable_data_ptr<float>(), static_cast<size_t>(weight.numel()));
      weight.mul_(0.02);
    }
    weights[name] = weight;
    ++index;
  }
  return weights;
}

}  // namespace

LabelledTokens::LabelledTokens(const TokenRows& rows) {
  TokenRows cut;
  std::vector<int64_t> next;
  for (const auto& row : rows) {
    cut.emplace_back(row.begin(), row.end() - 1);
    next.insert(next.end(), row.begin() + 1, row.end());
  }
  inputs = target::TokenBatch::packed(cut);
  labels = at::empty({static_cast<int64_t>(next.size())}, at::kLong);
  std::copy(next.begin(), next.end(), labels.mutable_data_ptr<int64_t>());
}

at::Tensor LanguageModel::loss_sum(const TokenRows& rows) const {
  const LabelledTokens tokens(rows);
  const target::DifferentiableModel model(config, weights);
  return head_loss(model.last_hidden(tokens.inputs), model.head(), tokens.labels);
}

void LanguageModel::write(const std::filesystem::path& folder) const {
  write_file(folder / "config.json", config.to_json().dump(2) + "\n");
  std::vector<formats::NamedTensor> tensors;
  target::WeightMap host;
  for (const auto& [name, weight] : weights) host[name] = device::to_host(weight.detach());
  for (const auto& [name, weight] : host) tensors.push_back({name, nn::view_of(weight)});
  formats::write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

LanguageModel new_language_model(const LanguageModelSection& section, uint64_t seed, const device::Runtime& runtime) {
  LanguageModel model;
  model.config = new_config(section);
  for (const auto& [name, weight] : new_weights(model.config, seed)) {
    model.weights[name] = device::to_device(runtime, weight);
  }
  return model;
}

LanguageModel load_language_model(const std::filesystem::path& path, device::Runtime& runtime) {
  LanguageModel model;
  model.config = read_target_config(path);
  const auto loaded = target::Target::load(path, at::kFloat, runtime);
  for (const auto& [name, shape] : target::weight_shapes(model.config)) {
    model.weights[name] = device::to_device(runtime, loaded->weight(name).clone());
  }
  return model;
}

}  // namespace pacer::train
