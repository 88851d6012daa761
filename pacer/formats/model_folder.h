// A Hugging Face model folder: its settings, its tokenizer's settings and its weights, with sizes bounded.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/formats/tensor_source.h"

namespace pacer::formats {

// Settings are read when the folder is opened, weights are not. All files named here lie in the folder.
class ModelFolder {
 public:
  // Throws Error{data} when the folder or its config.json is missing, Error{format} when a file is no JSON object, or
  // when what it says has the wrong form.
  static ModelFolder open(const std::filesystem::path& folder);

  const std::filesystem::path& path() const { return path_; }
  std::string config_place() const { return (path_ / "config.json").string(); }

  // config.json. A model that wraps a language model (text_config) is unwrapped: the inner object, completed by what
  // only the outer one says about token ids, tying and element type.
  const Json& config() const { return config_; }
  bool is_wrapped() const { return wrapped_; }
  const Json& generation_config() const { return generation_config_; }  // an empty object without the file
  const Json& tokenizer_config() const { return tokenizer_config_; }    // likewise

  std::optional<std::filesystem::path> tokenizer_json() const;  // when there is one
  // "bos_token" -> "<s>", from tokenizer_config.json, else from special_tokens_map.json.
  std::map<std::string, std::string> special_tokens() const;
  // "default" -> source. From chat_template.jinja, else from tokenizer_config.json; several when templates are named.
  std::map<std::string, std::string> chat_templates() const;
  // What the folder says about its licence: "license", "license_name", "license_link", "base_model" from the head of
  // README.md, and "license_file" for each LICENSE file.
  std::vector<std::pair<std::string, std::string>> licence() const;

  std::shared_ptr<TensorSource> tensors() const { return open_safetensors(path_); }

 private:
  ModelFolder() = default;
  std::filesystem::path path_;
  Json config_, generation_config_ = Json::object(), tokenizer_config_ = Json::object();
  bool wrapped_ = false;
};

}  // namespace pacer::formats
