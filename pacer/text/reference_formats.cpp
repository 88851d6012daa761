// The formats that the published trainers know by name.
#include <algorithm>

#include "pacer/base/error.h"
#include "pacer/text/reference_rules.h"

namespace pacer::text {
namespace {

using Pattern = ReferenceFormat::Pattern;

constexpr const char* kPlainSystem = "You are a helpful assistant.";

// The system prompt published with Llama 2 (Touvron et al. 2023), two spaces included.
constexpr const char* kLlamaSystem =
    "You are a helpful, respectful and honest assistant. Always answer as helpfully as possible, while being safe.  "
    "Your answers should not include any harmful, unethical, racist, sexist, toxic, dangerous, or illegal content. "
    "Please ensure that your responses are socially unbiased and positive in nature.\n\nIf a question does not make "
    "any sense, or is not factually coherent, explain why instead of answering something not correct. If you don't "
    "know the answer to a question, please don't share false information.";

ReferenceFormat plain(std::string name, std::string header, std::string end, std::string system = kPlainSystem) {
  ReferenceFormat format;
  format.name = std::move(name);
  format.assistant_header = std::move(header);
  format.end_of_turn = std::move(end);
  format.system_prompt = std::move(system);
  return format;
}

ReferenceFormat thinking(ReferenceFormat format, bool enable) {
  format.keeps_reasoning = true;
  format.enable_thinking = enable;
  return format;
}

ReferenceFormat ignoring(ReferenceFormat format, std::vector<std::string> texts) {
  format.ignored = std::move(texts);
  return format;
}

ReferenceFormat ending(ReferenceFormat format, Pattern pattern) {
  format.pattern = pattern;
  return format;
}

std::vector<ReferenceFormat> make_formats() {
  const std::string chatml = "<|im_start|>assistant\n", chatml_end = "<|im_end|>\n";
  const std::string kimi = "<|im_assistant|>assistant<|im_middle|>", deepseek_end = "<｜end▁of▁sentence｜>";
  ReferenceFormat glm = ending(plain("glm-5.2", "<|assistant|><think>", "<|user|>", ""), Pattern::glm);
  glm.enable_thinking = false;
  ReferenceFormat gemma4 = plain("gemma4", "<|turn>model\n", "<turn|>\n", "");
  gemma4.answer_prefix = "<|channel>thought\n<channel|>";
  return {
      plain("llama3", "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", kLlamaSystem),
      plain("llama4", "<|header_start|>assistant<|header_end|>\n\n", "<|eot|>"),
      plain("qwen", chatml, chatml_end),
      plain("lfm", chatml, chatml_end, ""),
      plain("phi3", "<|assistant|>\n", "<|end|>\n"),
      plain("phi4", "<|im_start|>assistant<|im_sep|>", "<|im_end|>"),
      plain("phi4-mini", "<|assistant|>", "<|end|>"),
      plain("gpt-oss-naive", "<|start|>assistant<|channel|>analysis<|message|>", "<|end|>", ""),
      thinking(plain("qwen3-thinking", chatml, chatml_end), true),
      ignoring(plain("qwen3-instruct", chatml, chatml_end), {"<think>\n\n</think>\n\n"}),
      thinking(plain("qwen3-next-thinking", chatml + "<think>\n", chatml_end), true),
      thinking(plain("kimi-k2-thinking", kimi, "<|im_end|>"), true),
      plain("kimi-k2-instruct", kimi, "<|im_end|>"),
      ignoring(thinking(plain("kimi-k3-thinking", "<|open|>message role=\"assistant\"<|sep|><|open|>think<|sep|>",
                              "<|end_of_msg|>", ""),
                        false),
               {"<|end_of_msg|>"}),
      plain("deepseek-v3", "<｜Assistant｜>", deepseek_end),
      plain("deepseek-v2", "Assistant: ", deepseek_end, ""),
      thinking(plain("deepseek-v32", "<｜Assistant｜>", deepseek_end, ""), true),
      plain("ling-flash-2.0", "<role>ASSISTANT</role>", "<|role_end|>"),
      ignoring(std::move(glm), {"<|user|>"}),
      plain("gemma", "<start_of_turn>model\n", "<end_of_turn>\n"),
      std::move(gemma4),
      ending(plain("longcat", " ASSISTANT:", "</longcat_s>"), Pattern::longcat),
      plain("longcat_xml", "<longcat_assistant>", "</longcat_s>"),
      thinking(plain("qwen3.5", chatml + "<think>\n", chatml_end, ""), true),
      ignoring(
          thinking(ending(plain("inkling-thinking", "<|message_model|>", "<|message_user|>", ""), Pattern::inkling),
                   true),
          {"<|message_user|>", "<|message_tool|>", "<|message_system|>"}),
  };
}

const std::vector<ReferenceFormat>& formats() {
  static const std::vector<ReferenceFormat> all = make_formats();
  return all;
}

}  // namespace

std::vector<std::string> reference_format_names() {
  std::vector<std::string> names;
  for (const ReferenceFormat& format : formats()) names.push_back(format.name);
  return names;
}

const ReferenceFormat& reference_format(const std::string& name) {
  for (const ReferenceFormat& format : formats()) {
    if (format.name == name) return format;
  }
  std::string known;
  for (const ReferenceFormat& format : formats()) known += (known.empty() ? "" : ", ") + format.name;
  throw Error(ErrorKind::usage, "no format of chats is named '" + name + "'", "known are " + known);
}

}  // namespace pacer::text
