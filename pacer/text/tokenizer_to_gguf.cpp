#include "pacer/text/tokenizer_to_gguf.h"

#include <string>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/base/files.h"
#include "pacer/text/gguf_pre_types.h"
#include "pacer/text/tokenizer_component.h"
#include "pacer/text/tokenizer_json.h"

namespace pacer::text {
namespace {

[[noreturn]] void refuse(const std::string& place, const std::string& what) {
  throw Error(ErrorKind::format, place + ": " + what,
              "GGUF metadata cannot say this; convert a .gguf file of the model, whose tokenizer is carried over");
}

// Components without the fields that only offsets depend on, nested sequences flat.
void collect(const OrderedJson& component, const char* key, std::vector<OrderedJson>& parts) {
  if (component.is_null()) return;
  if (component.value("type", "") == "Sequence" && component.contains(key)) {
    for (const OrderedJson& part : component.at(key)) collect(part, key, parts);
    return;
  }
  OrderedJson part = component;
  part.erase("trim_offsets");
  if (part.value("type", "") == "ByteLevel" && !part.contains("use_regex")) part["use_regex"] = true;
  parts.push_back(std::move(part));
}

// Equal whatever the order of members.
Json comparable(const OrderedJson& component, const char* key) {
  std::vector<OrderedJson> parts;
  collect(component, key, parts);
  Json list = Json::array();
  for (const OrderedJson& part : parts) list.push_back(Json::parse(part.dump()));
  return list;
}

// null is "no", as where tokenizers are read.
bool flag_of(const Json& component, const char* key) { return component.contains(key) && component[key] == true; }

std::string pre_type(const OrderedJson& frame, bool& add_prefix_space, const std::string& place) {
  const auto member = [&](const char* name) { return frame.contains(name) ? frame.at(name) : OrderedJson(nullptr); };
  const Json normalizer = comparable(member("normalizer"), "normalizers");
  const Json cutting = comparable(member("pre_tokenizer"), "pretokenizers");
  const bool ignore_merges = Component::root(frame, place).at("model").flag_or("ignore_merges", false);
  add_prefix_space = !cutting.empty() && flag_of(cutting.back(), "add_prefix_space");
  // Names that several rules share are tried in the order in which tools know them best.
  for (const char* name : {"llama-bpe", "qwen2", "smollm", "gpt-2", "default"}) {
    const GgufPreType& type = gguf_pre_types().at(name);
    if (comparable(type.normalizer, "normalizers") == normalizer && type.ignore_merges == ignore_merges &&
        comparable(pre_tokenizer_json(type, add_prefix_space), "pretokenizers") == cutting) {
      return name;
    }
  }
  refuse(place, "its pre_tokenizer and normalizer are none that tokenizer.ggml.pre has a name for");
}

}  // namespace

void add_gguf_tokenizer(const std::filesystem::path& tokenizer_json, int64_t vocab_size,
                        formats::GgufMetadata& metadata) {
  const std::string place = tokenizer_json.string(), json = read_file(tokenizer_json, uint64_t{512} << 20);
  const auto tokenizer = Tokenizer::from_json(json, place);  // refuses what is not understood
  const TokenizerSpec spec = read_tokenizer_json(json, place);
  const Component root = Component::root(spec.frame, place), model = root.at("model");
  if (model.text_or("type", "BPE") != "BPE" || model.flag_or("byte_fallback", false)) {
    refuse(place, "the tokenizer is not a byte-level BPE");
  }
  if (tokenizer->vocab_size() > vocab_size) {
    throw Error(ErrorKind::format,
                place + ": " + std::to_string(tokenizer->vocab_size()) + " tokens for an embedding of " +
                    std::to_string(vocab_size) + " rows",
                "the tokenizer belongs to another model");
  }
  bool prefix = false;
  const std::string pre = pre_type(spec.frame, prefix, place);
  metadata.text("tokenizer.ggml.model", "gpt2");
  metadata.text("tokenizer.ggml.pre", pre);
  if (prefix) metadata.flag("tokenizer.ggml.add_space_prefix", true);

  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int64_t id = 0; id < vocab_size; ++id) {
    const bool there = spec.vocabulary.has(id);
    tokens.push_back(there ? std::string(spec.vocabulary.text_of(static_cast<int32_t>(id)))
                           : "[PAD" + std::to_string(id) + "]");
    types.push_back(static_cast<int32_t>(there ? kGgufNormal : kGgufUnused));
  }
  if (root.has("added_tokens")) {
    for (const Component& added : root.list("added_tokens")) {
      const auto id = static_cast<size_t>(added.integer("id"));
      tokens.at(id) = added.text("content");
      types.at(id) = static_cast<int32_t>(added.flag_or("special", false) ? kGgufControl : kGgufUserDefined);
    }
  }
  metadata.texts("tokenizer.ggml.tokens", tokens);
  metadata.i32s("tokenizer.ggml.token_type", types);

  std::vector<std::string> merges;
  for (const auto& [left, right] : spec.merges) {
    if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos) {
      refuse(place, "a merge of tokens that hold spaces");
    }
    merges.push_back(left + " " + right);
  }
  metadata.texts("tokenizer.ggml.merges", merges);

  const std::vector<int64_t> bare = tokenizer->encode("a").ids;
  const std::vector<int64_t> full = tokenizer->encode("a", {.add_special_tokens = true}).ids;
  const bool bos = full.size() > bare.size() && full.front() != bare.front();
  const bool eos = full.size() > bare.size() && full.back() != bare.back();
  if (full.size() != bare.size() + (bos ? 1u : 0u) + (eos ? 1u : 0u)) {
    refuse(place, "its post_processor adds more than one token at the beginning and one at the end");
  }
  metadata.flag("tokenizer.ggml.add_bos_token", bos);
  metadata.flag("tokenizer.ggml.add_eos_token", eos);
  if (bos) metadata.u32("tokenizer.ggml.bos_token_id", full.front());
  if (eos) metadata.u32("tokenizer.ggml.eos_token_id", full.back());
}

}  // namespace pacer::text
