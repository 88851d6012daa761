#include "pacer/text/model_text.h"

#include <array>
#include <optional>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/formats/gguf.h"

namespace pacer::text {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxTemplateBytes = uint64_t{4} << 20;

// A special token is a string or an object with its content.
std::optional<std::string> token_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

// A text, or a list of named templates of which "default" is the one for chats.
std::optional<std::string> template_text(const Json& value, const std::string& place) {
  if (value.is_null()) return std::nullopt;
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    for (const Json& entry : value) {
      if (entry.is_object() && entry.contains("name") && entry["name"] == "default" && entry.contains("template") &&
          entry["template"].is_string()) {
        return entry["template"].get<std::string>();
      }
    }
  }
  throw Error(ErrorKind::format, place + ": chat_template is neither text nor a list with the entry 'default'");
}

}  // namespace

std::shared_ptr<const ModelText> ModelText::load(const fs::path& path) {
  if (!fs::exists(path)) {
    throw Error(ErrorKind::data, path.string() + ": no such model folder or .gguf file", "check the path");
  }
  std::shared_ptr<ModelText> text(new ModelText);
  text->place_ = path.string();
  std::optional<std::string> source;
  std::string source_place;
  if (path.extension() == ".gguf") {
    const auto file = formats::GgufFile::open(path);
    text->tokenizer_ = Tokenizer::from_gguf(*file);
    const std::array<std::pair<const char*, const char*>, 3> roles = {
        {{"bos_token", "bos"}, {"eos_token", "eos"}, {"pad_token", "padding"}}};
    for (const auto& [name, key] : roles) {
      const std::string full = std::string("tokenizer.ggml.") + key + "_token_id";
      if (file->has(full)) text->special_tokens_[name] = text->tokenizer_->id_to_token(file->integer(full));
    }
    source_place = path.string() + ": tokenizer.chat_template";
    if (file->has("tokenizer.chat_template")) source = file->text("tokenizer.chat_template");
  } else {
    text->tokenizer_ = Tokenizer::load(path);
    const fs::path config = path / "tokenizer_config.json", separate = path / "chat_template.jinja";
    if (fs::exists(config)) {
      const Json values = read_json(config, uint64_t{64} << 20);
      for (const char* name : {"bos_token", "eos_token", "pad_token", "unk_token"}) {
        if (!values.contains(name)) continue;
        if (const auto token = token_text(values[name])) text->special_tokens_[name] = *token;
      }
      source_place = config.string() + ": chat_template";
      if (values.contains("chat_template")) source = template_text(values["chat_template"], config.string());
    }
    if (fs::exists(separate)) {  // newer folders keep it here, and then this one counts
      source_place = separate.string();
      source = read_file(separate, kMaxTemplateBytes);
    }
  }
  if (source) text->template_ = ChatTemplate::parse(*source, source_place);
  return text;
}

const ChatTemplate& ModelText::chat_template() const {
  if (template_ == nullptr) {
    throw Error(ErrorKind::usage, place_ + ": this model has no chat template",
                "use a chat model, or give prompts as plain text where the command allows it");
  }
  return *template_;
}

uint32_t ModelText::template_fingerprint() const {
  if (template_ == nullptr) return 0;
  const std::string& source = template_->source();
  return crc32c(std::as_bytes(std::span(source.data(), source.size())));
}

std::vector<int64_t> ModelText::prompt_ids(const OrderedJson& messages, const OrderedJson& tools,
                                           const OrderedJson& variables) const {
  RenderOptions options;
  options.add_generation_prompt = true;
  options.tools = tools;
  options.variables = special_tokens_;
  for (const auto& [name, value] : variables.items()) options.variables[name] = value;
  return tokenizer_->encode(chat_template().render(messages, options).text).ids;
}

}  // namespace pacer::text
