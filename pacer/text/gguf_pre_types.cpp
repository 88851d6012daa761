#include "pacer/text/gguf_pre_types.h"

#include <utility>

namespace pacer::text {
namespace {

OrderedJson split_json(const char* regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

}  // namespace

OrderedJson byte_level_json(bool add_prefix_space, bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", false}, {"use_regex", use_regex}};
}

OrderedJson sequence_json(const char* key, std::vector<OrderedJson> parts) {
  return {{"type", "Sequence"}, {key, OrderedJson(std::move(parts))}};
}

const std::map<std::string, GgufPreType>& gguf_pre_types() {
  static const std::map<std::string, GgufPreType> types = [] {
    const OrderedJson digits = {{"type", "Digits"}, {"individual_digits", true}};
    const GgufPreType gpt2{nullptr, {}, true, false, false};
    const GgufPreType single_digits{nullptr, {digits}, true, false, false};
    const GgufPreType llama3{nullptr,
                             {split_json("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
                                         "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")},
                             false,
                             true,
                             true};
    const GgufPreType qwen2{{{"type", "NFC"}},
                            {split_json("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
                                        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")},
                            false,
                            false,
                            false};
    const GgufPreType plain{
        nullptr,
        {split_json("[\\p{P}\\$\\+<=>\\^~\\|]+"),
         split_json("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"),
         split_json("\\p{N}+"), split_json("[0-9][0-9][0-9]")},
        false,
        false,
        false};
    return std::map<std::string, GgufPreType>{{"default", plain},        {"gpt-2", gpt2},
                                              {"phi-2", gpt2},           {"smollm", single_digits},
                                              {"refact", single_digits}, {"starcoder", single_digits},
                                              {"llama-bpe", llama3},     {"llama3", llama3},
                                              {"llama-v3", llama3},      {"qwen2", qwen2}};
  }();
  return types;
}

OrderedJson pre_tokenizer_json(const GgufPreType& type, bool add_prefix_space) {
  std::vector<OrderedJson> parts = type.splits;
  parts.push_back(byte_level_json(add_prefix_space, type.gpt2_pattern));
  return sequence_json("pretokenizers", std::move(parts));
}

}  // namespace pacer::text
