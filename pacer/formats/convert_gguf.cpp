#include "pacer/formats/convert_gguf.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/base/version.h"
#include "pacer/formats/gguf_config.h"
#include "pacer/formats/gguf_model.h"
#include "pacer/formats/manifest.h"

namespace pacer::formats {
namespace {

namespace fs = std::filesystem;

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::BF16:
      return "bfloat16";
    case DType::F16:
      return "float16";
    case DType::F32:
      return "float32";
    default:
      throw Error(ErrorKind::usage, "weights cannot be written as " + std::string(dtype_name(dtype)) +
                                        "; BF16, F16 and F32 are possible");
  }
}

// Text that will stand in JSON, where only UTF-8 may.
std::string checked_text(const GgufFile& file, const std::string& key, std::string_view text) {
  std::string copy(text);
  const GgufValue value{GgufType::String, text};
  if (to_json(value).get_ref<const std::string&>() != copy) {
    throw Error(ErrorKind::format, file.place() + ": the text of '" + key + "' is not UTF-8");
  }
  return copy;
}

OrderedJson tokenizer_config(const GgufFile& file) {
  OrderedJson config = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                        {"clean_up_tokenization_spaces", false},
                        {"model_max_length", file.integer(file.text("general.architecture") + ".context_length")}};
  const std::string prefix = "tokenizer.ggml.";
  if (file.has(prefix + "tokens")) {
    const std::vector<std::string_view> tokens = file.texts(prefix + "tokens");
    constexpr std::pair<const char*, const char*> kRoles[] = {
        {"bos", "bos_token"}, {"eos", "eos_token"}, {"unknown", "unk_token"}, {"padding", "pad_token"}};
    for (const auto& [role, name] : kRoles) {
      const std::string key = prefix + role + "_token_id";
      const std::optional<int64_t> id = file.find_integer(key);
      if (!id) continue;
      if (*id < 0 || static_cast<uint64_t>(*id) >= tokens.size()) {
        throw Error(ErrorKind::format, file.place() + ": '" + key + "' is " + std::to_string(*id) + ", there are " +
                                           std::to_string(tokens.size()) + " tokens");
      }
      config[name] = checked_text(file, prefix + "tokens", tokens[static_cast<size_t>(*id)]);
    }
  }
  for (const char* name : {"add_bos_token", "add_eos_token"}) {
    if (const auto flag = file.find_boolean(prefix + name)) config[name] = *flag;
  }
  const std::string key = "tokenizer.chat_template";
  if (const auto source = file.find_text(key)) config["chat_template"] = checked_text(file, key, *source);
  return config;
}

// A model card: its head is what tools read, and JSON strings are valid there.
std::string model_card(const GgufFile& file) {
  const auto provenance = gguf_provenance(file);
  std::string head, list;
  for (const auto& [key, value] : provenance) {
    const std::string quoted = Json(value).dump(-1, ' ', false, Json::error_handler_t::replace);
    if (key == "license" || key == "license.name" || key == "license.link") {
      std::string name = key;
      std::replace(name.begin(), name.end(), '.', '_');
      head += name + ": " + quoted + "\n";
    }
    list += "- " + key + ": " + value + "\n";
  }
  std::string card = "---\n" + head + "---\n# " + file.find_text("general.name").value_or("Model") + "\n\n";
  card += "Converted from `" + fs::path(file.place()).filename().string() + "` by Pacer " + version() + ".\n";
  if (!list.empty()) card += "\nThe file says about itself:\n\n" + list;
  return card;
}

void write_weights(const fs::path& path, const GgufModel& model, const ConvertOptions& options) {
  std::vector<TensorSpec> specs;
  uint64_t total = 0, done = 0;
  for (const std::string& name : model.names()) {
    specs.push_back({name, options.dtype, model.shape(name)});
    total += static_cast<uint64_t>(model.stored(name).rows() * model.stored(name).width());
  }
  const auto fill = [&](const TensorSpec& tensor, std::span<std::byte> bytes) {
    model.read(tensor.name, tensor.dtype, bytes);
    done += bytes.size() / item_size(tensor.dtype);
    if (options.progress) options.progress(done, total);
  };
  write_safetensors(path, specs, fill, {{"format", "pt"}});
}

}  // namespace

void convert_gguf(const fs::path& file, const fs::path& folder, const ConvertOptions& options) {
  const std::string dtype = torch_name(options.dtype);
  const auto model = GgufModel::open(file);
  const GgufFile& gguf = model->file();
  Json config = model->config();
  config["dtype"] = dtype;
  config["torch_dtype"] = dtype;
  const OrderedJson tokenizer = tokenizer_config(gguf);

  FolderTransaction transaction(folder, options.replace);
  const fs::path& out = transaction.temporary();
  write_file(out / "config.json", config.dump(2) + "\n");
  write_file(out / "generation_config.json", model->generation_config().dump(2) + "\n");
  write_file(out / "tokenizer_config.json", tokenizer.dump(2) + "\n");
  if (!options.tokenizer_json.empty()) write_file(out / "tokenizer.json", options.tokenizer_json);
  write_file(out / "README.md", model_card(gguf));
  write_weights(out / "model.safetensors", *model, options);

  Manifest manifest;
  manifest.schema = "pacer.model";
  manifest.version = 1;
  manifest.fingerprints["source"] = fingerprint_file(file);
  manifest.details = {{"source", file.filename().string()}, {"dtype", dtype}, {"pacer", version()}};
  write_manifest(out, std::move(manifest));
  transaction.commit();
}

}  // namespace pacer::formats
