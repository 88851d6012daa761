#include <string>

#include <ATen/ops/index_select.h>

#include "pacer/base/error.h"
#include "pacer/base/json.h"
#include "pacer/device/kernels.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/target/plain_transformer.h"
#include "pacer/target/stored_matrices.h"
#include "pacer/target/target.h"
#include "pacer/target/transformer.h"

namespace pacer::target {
namespace {

namespace fs = std::filesystem;

at::ScalarType rows_dtype(Precision precision) { return precision == Precision::bf16 ? at::kBFloat16 : at::kFloat; }

// Where generation stops is a matter of generation_config.json; config.json often names one of several stop tokens.
void take_generation_settings(const Json& json, const std::string& place, ModelConfig& config) {
  if (!json.is_object()) throw Error(ErrorKind::format, place + ": not an object");
  if (!json.contains("eos_token_id") || json.at("eos_token_id").is_null()) return;
  const Json& eos = json.at("eos_token_id");
  config.eos_ids.clear();
  for (const Json& id : eos.is_array() ? eos : Json::array({eos})) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0) {
      throw Error(ErrorKind::format,
                  place + ": eos_token_id is " + eos.dump() + "; expected a token id or a list of token ids");
    }
    config.eos_ids.push_back(id.get<int64_t>());
  }
}

std::unique_ptr<Target> transformer(ModelConfig config, WeightMap weights, at::ScalarType dtype, c10::Device device) {
  if (device::own_kernels(device) && device::own_attention(device)) {
    return std::make_unique<Transformer>(std::move(config), std::move(weights), dtype);
  }
  return std::make_unique<PlainTransformer>(std::move(config), std::move(weights), dtype, device);
}

std::unique_ptr<Target> load_folder(const fs::path& folder, at::ScalarType dtype, c10::Device device) {
  const fs::path config_path = folder / "config.json";
  ModelConfig config = ModelConfig::from_json(read_json(config_path), config_path.string());
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation)) take_generation_settings(read_json(generation), generation.string(), config);
  WeightMap weights = load_weights(config, formats::open_safetensors(folder), dtype);
  return transformer(std::move(config), std::move(weights), dtype, device);
}

std::unique_ptr<Target> load_gguf(const fs::path& file, Precision precision, const device::Runtime& runtime) {
  const auto gguf = formats::GgufModel::open(file);
  ModelConfig config = ModelConfig::from_json(gguf->config(), file.string());
  take_generation_settings(gguf->generation_config(), file.string(), config);
  const bool bytes = precision == Precision::stored_int8;
  auto stored = std::make_shared<const StoredMatrices>(gguf, bytes ? nn::QuantRows::bytes : nn::QuantRows::words);
  const at::ScalarType dtype = rows_dtype(precision);
  const bool as_stored = precision == Precision::stored || bytes;
  if (as_stored && !(device::own_kernels(runtime.device()) && device::own_attention(runtime.device()))) {
    throw Error(ErrorKind::usage,
                "device " + runtime.name() + ": weights are computed as stored by Pacer's own kernels",
                "use bf16 or f32 with this device, and leave kernel_impl and attention_impl at auto");
  }
  WeightMap weights = load_weights(config, *stored, dtype, as_stored);
  if (!as_stored) return transformer(std::move(config), std::move(weights), dtype, runtime.device());
  return std::make_unique<Transformer>(std::move(config), std::move(weights), dtype, std::move(stored));
}

}  // namespace

c10::Device Target::device() const { return device::host_device(); }

at::Tensor Target::embed(const at::Tensor& ids) const { return embedding_weight().index_select(0, ids.to(device())); }

Precision parse_precision(const std::string& word) {
  if (word == "f32") return Precision::f32;
  if (word == "bf16") return Precision::bf16;
  if (word == "stored") return Precision::stored;
  if (word == "stored-int8") return Precision::stored_int8;
  throw Error(ErrorKind::usage, "dtype '" + word + "' is not known; allowed are f32, bf16, stored and stored-int8");
}

std::unique_ptr<Target> Target::load(const fs::path& path, at::ScalarType dtype, device::Runtime& runtime) {
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    throw Error(ErrorKind::usage,
                std::string("target dtype ") + toString(dtype) + "; allowed are Float (f32) and BFloat16 (bf16)");
  }
  return load(path, dtype == at::kFloat ? Precision::f32 : Precision::bf16, runtime);
}

std::unique_ptr<Target> Target::load(const fs::path& path, Precision precision, device::Runtime& runtime) {
  if (fs::is_regular_file(path) && path.extension() == ".gguf") return load_gguf(path, precision, runtime);
  if (fs::is_directory(path) && precision != Precision::f32 && precision != Precision::bf16) {
    throw Error(ErrorKind::usage, path.string() + ": only .gguf files are computed as stored",
                "use bf16 or f32, or make a file with: pacer model convert " + path.string() +
                    " model.gguf --to gguf --type q8_0");
  }
  if (fs::is_directory(path)) return load_folder(path, rows_dtype(precision), runtime.device());
  throw Error(ErrorKind::format, path.string() + ": neither a model folder nor a .gguf file",
              "give a folder with config.json and model.safetensors, or a .gguf file");
}

}  // namespace pacer::target
