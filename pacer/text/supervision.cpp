#include "pacer/text/supervision.h"

#include <algorithm>

#include "pacer/base/error.h"

namespace pacer::text {
namespace {

bool is_stop(const Tokenizer& tokenizer, const SupervisionOptions& options, int64_t id) {
  if (options.stop_ids.empty()) return tokenizer.is_special(id);
  return std::find(options.stop_ids.begin(), options.stop_ids.end(), id) != options.stop_ids.end();
}

// Up to and including the first stop token behind the content, if there is one before the next message.
Span span_of(const LocatedAnswer& answer, const Encoding& encoding, const Tokenizer& tokenizer,
             const SupervisionOptions& options) {
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const auto& [begin, end] = encoding.offsets[i];
    if (begin < answer.content_end) continue;
    if (end > answer.limit) break;
    if (is_stop(tokenizer, options, encoding.ids[i])) return {answer.begin, end};
  }
  return {answer.begin, answer.content_end};
}

// Some write the arguments of a call as JSON text, some as an object. Templates that print them with `tojson` would
// escape the text a second time, without an error.
OrderedJson with_decoded_arguments(OrderedJson messages) {
  for (OrderedJson& message : messages) {
    if (!message.is_object()) continue;
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) continue;
    for (OrderedJson& call : *calls) {
      if (!call.is_object()) continue;
      const auto function = call.find("function");
      OrderedJson& holder = function != call.end() && function->is_object() ? *function : call;
      const auto arguments = holder.find("arguments");
      if (arguments == holder.end() || !arguments->is_string()) continue;
      OrderedJson decoded = OrderedJson::parse(arguments->get<std::string>(), nullptr, /*allow_exceptions=*/false);
      if (decoded.is_object()) *arguments = std::move(decoded);
    }
  }
  return messages;
}

}  // namespace

std::vector<uint8_t> tokens_inside(const std::vector<Span>& token_offsets, const std::vector<Span>& spans) {
  std::vector<uint8_t> mask(token_offsets.size(), 0);
  for (size_t i = 0; i < mask.size(); ++i) {
    const auto& [begin, end] = token_offsets[i];
    for (const Span& span : spans) {
      if (begin >= span.first && end <= span.second) mask[i] = 1;
    }
  }
  return mask;
}

SupervisedText supervise(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const OrderedJson& given,
                         const SupervisionOptions& options) {
  if (options.max_length <= 0) {
    throw Error(ErrorKind::usage, "max_length is " + std::to_string(options.max_length) + ", it must be positive");
  }
  if (!given.is_array()) throw Error(ErrorKind::data, "messages are no list", "give [{\"role\": ..., ...}, ...]");
  const OrderedJson messages = with_decoded_arguments(given);
  RenderOptions render = options.render;
  render.add_generation_prompt = false;
  Rendered rendered = chat_template.render(messages, render);
  Encoding encoding = tokenizer.encode(rendered.text, {.add_special_tokens = false, .offsets = true});

  SupervisedText out;
  if (!rendered.generation.empty() && !rendered.generation_unplaced) {
    out.spans = std::move(rendered.generation);
  } else {
    for (const LocatedAnswer& answer : locate_answers(chat_template, messages, render, rendered.text)) {
      out.spans.push_back(span_of(answer, encoding, tokenizer, options));
    }
  }
  if (options.last_turn_only && out.spans.size() > 1) out.spans.erase(out.spans.begin(), out.spans.end() - 1);
  out.text = std::move(rendered.text);
  out.supervised = tokens_inside(encoding.offsets, out.spans);
  out.ids = std::move(encoding.ids);
  const auto length = std::min(out.ids.size(), static_cast<size_t>(options.max_length));
  out.ids.resize(length);
  out.supervised.resize(length);
  return out;
}

}  // namespace pacer::text
