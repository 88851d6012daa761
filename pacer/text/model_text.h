// The words of a model: its tokenizer, its own chat template and the tokens at which its answers end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "pacer/base/json.h"
#include "pacer/text/chat_template.h"
#include "pacer/text/tokenizer.h"

namespace pacer::text {

class ModelText {
 public:
  // path: a Hugging Face folder (tokenizer.json; the template in tokenizer_config.json or chat_template.jinja) or a
  // .gguf file. A model without a chat template can be loaded; only chats are refused then.
  // Throws Error{data} or Error{format} naming the file.
  static std::shared_ptr<const ModelText> load(const std::filesystem::path& path);

  const std::shared_ptr<const Tokenizer>& tokenizer() const { return tokenizer_; }
  bool has_chat_template() const { return template_ != nullptr; }
  // Throws Error{usage} when the model has none: no other template is taken in its place.
  const ChatTemplate& chat_template() const;
  // Which template renders this model's chats: CRC-32C of its source, 0 without one. Part of fingerprints.
  uint32_t template_fingerprint() const;

  // Token ids of a conversation that the model shall answer: rendered with the generation prompt, encoded once.
  // variables: what the template may ask for beside the messages, such as {"enable_thinking": false}.
  std::vector<int64_t> prompt_ids(const OrderedJson& messages, const OrderedJson& tools = nullptr,
                                  const OrderedJson& variables = OrderedJson::object()) const;

 private:
  ModelText() = default;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
  OrderedJson special_tokens_ = OrderedJson::object();  // bos_token, eos_token, ... as templates name them
  std::string place_;
};

}  // namespace pacer::text
