#include "pacer/workflow/model_info.h"

#include <memory>

#include "pacer/base/error.h"
#include "pacer/formats/gguf_config.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/model_folder.h"
#include "pacer/text/chat_template.h"
#include "pacer/text/tokenizer.h"

namespace pacer::workflow {
namespace {

namespace fs = std::filesystem;

// An inspection reports what is not supported instead of stopping there.
template <typename Make>
auto part(Make make) -> Part<decltype(make())> {
  try {
    return {make(), {}};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::bug) throw;
    return {std::nullopt, error.what()};
  }
}

// Text of a file as valid UTF-8, so that it can be printed in JSON.
std::string printable(std::string_view text) {
  return formats::to_json({formats::GgufType::String, text}).get<std::string>();
}

TokenizerInfo describe(const text::Tokenizer& tokenizer) {
  return {tokenizer.vocab_size(), tokenizer.special_tokens()};
}

Part<TemplateInfo> describe_template(const std::string& source, const std::string& place) {
  return part([&] { return TemplateInfo{source.size(), text::ChatTemplate::parse(source, place)->constructs()}; });
}

void count(ModelInfo& info, const std::string& type, uint64_t parameters, uint64_t bytes) {
  TypeShare& share = info.types[type];
  share.tensors += 1;
  share.parameters += static_cast<int64_t>(parameters);
  share.bytes += bytes;
  info.parameters += static_cast<int64_t>(parameters);
  info.stored_bytes += bytes;
}

ModelInfo read_gguf(const fs::path& path) {
  const auto file = formats::GgufFile::open(path);
  ModelInfo info;
  info.format = "GGUF " + std::to_string(file->version());
  info.name = printable(file->find_text("general.name").value_or(""));
  info.architecture = printable(file->find_text("general.architecture").value_or(""));
  info.config = part([&] {
    const auto model = formats::GgufModel::open(path);
    return target::ModelConfig::from_json(model->config(), path.string());
  });
  for (const formats::GgufTensor& tensor : file->tensors()) {
    if (tensor.name == "rope_freqs.weight") continue;  // a setting, not a weight
    count(info, std::string(formats::ggml_layout(tensor.type).name),
          static_cast<uint64_t>(tensor.rows() * tensor.width()), tensor.bytes.size());
  }
  if (file->has("tokenizer.ggml.model")) {
    info.tokenizer = part([&] { return describe(*text::Tokenizer::from_gguf(*file)); });
  }
  if (file->has("tokenizer.ggml.tokens")) {
    const std::vector<std::string_view> tokens = file->texts("tokenizer.ggml.tokens");
    for (const char* role : {"bos", "eos", "eot", "eom", "unknown", "padding"}) {
      const auto id = file->find_integer("tokenizer.ggml." + std::string(role) + "_token_id");
      if (!id || *id < 0 || static_cast<uint64_t>(*id) >= tokens.size()) continue;
      info.special_tokens[std::string(role) + "_token"] = printable(tokens[static_cast<size_t>(*id)]);
    }
  }
  const std::string key = "tokenizer.chat_template";
  for (const std::string& name : file->keys()) {
    if (name != key && !name.starts_with(key + ".")) continue;
    info.templates[name == key ? "default" : printable(name.substr(key.size() + 1))] =
        describe_template(file->text(name), path.string() + ": " + name);
  }
  for (auto& entry : formats::gguf_provenance(*file)) {
    if (entry.first != "name") info.licence.push_back(std::move(entry));  // the name stands above
  }
  return info;
}

ModelInfo read_folder(const fs::path& path) {
  const formats::ModelFolder folder = formats::ModelFolder::open(path);
  ModelInfo info;
  info.format = "Hugging Face folder";
  const Json& config = folder.config();
  if (config.contains("_name_or_path") && config["_name_or_path"].is_string()) {
    info.name = config["_name_or_path"].get<std::string>();
  }
  if (config.contains("model_type") && config["model_type"].is_string()) {
    info.architecture = config["model_type"].get<std::string>();
  }
  info.config = part([&] {
    if (folder.is_wrapped()) {
      throw Error(ErrorKind::format, folder.config_place() + ": a language model inside a larger one is not supported");
    }
    return target::ModelConfig::from_json(config, folder.config_place());
  });
  const auto tensors = folder.tensors();
  for (const std::string& name : tensors->names()) {
    const formats::TensorView view = tensors->tensor(name);
    count(info, std::string(formats::dtype_name(view.dtype)), view.bytes.size() / formats::item_size(view.dtype),
          view.bytes.size());
  }
  if (const auto file = folder.tokenizer_json()) {
    info.tokenizer = part([&] { return describe(*text::Tokenizer::load(*file)); });
  }
  info.special_tokens = folder.special_tokens();
  for (const auto& [name, source] : folder.chat_templates()) {
    info.templates[name] = describe_template(source, path.string() + ": chat template '" + name + "'");
  }
  info.licence = folder.licence();
  return info;
}

}  // namespace

uint64_t ModelInfo::cache_bytes_per_token(uint64_t item) const {
  if (!config.value) return 0;
  const target::ModelConfig& model = *config.value;
  return 2 * item * static_cast<uint64_t>(model.layers * model.kv_heads * model.head_dim);
}

ModelInfo read_model_info(const fs::path& path) {
  if (!fs::exists(path)) throw Error(ErrorKind::data, path.string() + ": does not exist", "check the path");
  ModelInfo info = fs::is_directory(path) ? read_folder(path) : read_gguf(path);
  info.path = path;
  if (info.config.value) {
    info.default_taps = part([&] { return target::default_taps(info.config.value->layers); });
  }
  return info;
}

}  // namespace pacer::workflow
