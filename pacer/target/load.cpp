#include <string>

#include "pacer/base/error.h"
#include "pacer/base/json.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/tensor_source.h"
#include "pacer/nn/tensor_io.h"
#include "pacer/target/target.h"
#include "pacer/target/transformer.h"

namespace pacer::target {
namespace {

namespace fs = std::filesystem;

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

std::unique_ptr<Target> load_folder(const fs::path& folder, at::ScalarType dtype) {
  const fs::path config_path = folder / "config.json";
  ModelConfig config = ModelConfig::from_json(read_json(config_path), config_path.string());
  const fs::path generation = folder / "generation_config.json";
  if (fs::exists(generation)) take_generation_settings(read_json(generation), generation.string(), config);
  WeightMap weights = load_weights(config, formats::open_safetensors(folder), dtype);
  return std::make_unique<Transformer>(std::move(config), std::move(weights), dtype);
}

std::unique_ptr<Target> load_gguf(const fs::path& file, at::ScalarType dtype) {
  const auto gguf = formats::GgufModel::open(file);
  ModelConfig config = ModelConfig::from_json(gguf->config(), file.string());
  take_generation_settings(gguf->generation_config(), file.string(), config);
  WeightMap weights = load_weights(config, gguf->tensors(nn::file_dtype(dtype)), dtype);
  return std::make_unique<Transformer>(std::move(config), std::move(weights), dtype);
}

}  // namespace

std::unique_ptr<Target> Target::load(const fs::path& path, at::ScalarType dtype, device::Runtime& runtime) {
  if (!runtime.device().is_cpu()) {
    throw Error(ErrorKind::device, "targets run on the cpu, not on " + runtime.name());
  }
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    throw Error(ErrorKind::usage,
                std::string("target dtype ") + toString(dtype) + "; allowed are Float (f32) and BFloat16 (bf16)");
  }
  if (fs::is_directory(path)) return load_folder(path, dtype);
  if (fs::is_regular_file(path) && path.extension() == ".gguf") return load_gguf(path, dtype);
  throw Error(ErrorKind::format, path.string() + ": neither a model folder nor a .gguf file",
              "give a folder with config.json and model.safetensors, or a .gguf file");
}

}  // namespace pacer::target
