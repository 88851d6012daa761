#include "pacer/formats/model_folder.h"

#include <algorithm>
#include <sstream>

#include "pacer/base/error.h"
#include "pacer/base/files.h"

namespace pacer::formats {
namespace {

namespace fs = std::filesystem;

// Real ones are a few kilobytes; tokenizer_config.json with thousands of added tokens reaches a megabyte or two.
constexpr uint64_t kMaxConfig = uint64_t{4} << 20, kMaxTokenizerConfig = uint64_t{16} << 20;
constexpr uint64_t kMaxTemplate = uint64_t{4} << 20, kMaxReadme = uint64_t{4} << 20;

Json read_object(const fs::path& path, uint64_t max_bytes) {
  Json json = read_json(path, max_bytes);
  if (!json.is_object()) throw Error(ErrorKind::format, path.string() + ": not a JSON object");
  return json;
}

Json read_object_if_there(const fs::path& path, uint64_t max_bytes) {
  return fs::exists(path) ? read_object(path, max_bytes) : Json::object();
}

// A token is a string, or an object with its text in `content`.
std::optional<std::string> token_text(const Json& value, const std::string& place) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  throw Error(ErrorKind::format, place + ": neither a string nor an object with a string 'content'");
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string unquoted(std::string_view text) {
  const bool quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') && text.back() == text.front();
  return std::string(quoted ? text.substr(1, text.size() - 2) : text);
}

}  // namespace

ModelFolder ModelFolder::open(const fs::path& folder) {
  ModelFolder model;
  model.path_ = folder;
  if (!fs::is_directory(folder)) {
    throw Error(ErrorKind::data, folder.string() + ": not a folder", "give the folder of a Hugging Face model");
  }
  if (!fs::exists(folder / "config.json")) {
    throw Error(ErrorKind::data, folder.string() + ": no config.json", "give the folder of a Hugging Face model");
  }
  model.config_ = read_object(folder / "config.json", kMaxConfig);
  if (model.config_.contains("text_config") && !model.config_["text_config"].is_null()) {
    const Json outer = std::move(model.config_);
    if (!outer["text_config"].is_object()) {
      throw Error(ErrorKind::format, model.config_place() + ": text_config is no object");
    }
    model.config_ = outer["text_config"];
    model.wrapped_ = true;
    for (const char* key :
         {"bos_token_id", "eos_token_id", "pad_token_id", "tie_word_embeddings", "dtype", "torch_dtype"}) {
      if (!model.config_.contains(key) && outer.contains(key)) model.config_[key] = outer[key];
    }
  }
  model.generation_config_ = read_object_if_there(folder / "generation_config.json", kMaxConfig);
  model.tokenizer_config_ = read_object_if_there(folder / "tokenizer_config.json", kMaxTokenizerConfig);
  return model;
}

std::optional<fs::path> ModelFolder::tokenizer_json() const {
  const fs::path file = path_ / "tokenizer.json";
  return fs::exists(file) ? std::optional(file) : std::nullopt;
}

std::map<std::string, std::string> ModelFolder::special_tokens() const {
  std::map<std::string, std::string> tokens;
  const auto take = [&](const Json& json, const std::string& place) {
    for (const char* name :
         {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"}) {
      if (tokens.contains(name) || !json.contains(name)) continue;
      if (const auto text = token_text(json[name], place + ": " + name)) tokens.emplace(name, *text);
    }
  };
  take(tokenizer_config_, (path_ / "tokenizer_config.json").string());
  const fs::path map = path_ / "special_tokens_map.json";
  take(read_object_if_there(map, kMaxTokenizerConfig), map.string());
  return tokens;
}

std::map<std::string, std::string> ModelFolder::chat_templates() const {
  const fs::path file = path_ / "chat_template.jinja";
  if (fs::exists(file)) return {{"default", read_file(file, kMaxTemplate)}};
  if (!tokenizer_config_.contains("chat_template") || tokenizer_config_["chat_template"].is_null()) return {};
  const Json& value = tokenizer_config_["chat_template"];
  if (value.is_string()) return {{"default", value.get<std::string>()}};
  std::map<std::string, std::string> templates;
  const auto refuse = [&] {
    throw Error(ErrorKind::format, (path_ / "tokenizer_config.json").string() +
                                       ": chat_template is neither a string nor a list of {name, template}");
  };
  if (!value.is_array()) refuse();
  for (const Json& entry : value) {
    const bool good = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                      entry.contains("template") && entry["template"].is_string();
    if (!good) refuse();
    templates.emplace(entry["name"].get<std::string>(), entry["template"].get<std::string>());
  }
  return templates;
}

std::vector<std::pair<std::string, std::string>> ModelFolder::licence() const {
  std::vector<std::pair<std::string, std::string>> result;
  const fs::path readme = path_ / "README.md";
  if (fs::is_regular_file(readme)) {
    // A model card begins with YAML between two lines of dashes; only flat "key: value" lines matter here.
    std::istringstream lines(read_file(readme, kMaxReadme));
    std::string line;
    bool inside_head = std::getline(lines, line) && trimmed(line) == "---";
    while (inside_head && std::getline(lines, line)) {
      if (trimmed(line) == "---") break;
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      const std::string key = line.substr(0, colon),
                        value = unquoted(trimmed(std::string_view(line).substr(colon + 1)));
      const bool wanted = key == "license" || key == "license_name" || key == "license_link" || key == "base_model";
      if (wanted && !value.empty()) result.emplace_back(key, value);
    }
  }
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("LICENSE") || name.starts_with("LICENCE") || name == "NOTICE") files.push_back(name);
  }
  std::sort(files.begin(), files.end());
  for (const std::string& name : files) result.emplace_back("license_file", name);
  return result;
}

}  // namespace pacer::formats
