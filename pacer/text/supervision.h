// Which tokens of a rendered conversation a draft learns from: what the model itself would have written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pacer/text/chat_template.h"
#include "pacer/text/tokenizer.h"

namespace pacer::text {

struct SupervisionOptions {
  int64_t max_length = 4096;  // tokens; the rest is cut off on the right
  bool last_turn_only = false;
  // Tokens at which inference stops. The first one behind an answer is supervised, too: a draft has to learn to stop.
  // Empty: every special token of the tokenizer.
  std::vector<int64_t> stop_ids;
  RenderOptions render;
};

struct SupervisedText {
  std::string text;
  std::vector<int64_t> ids;         // of the whole text, encoded once
  std::vector<uint8_t> supervised;  // 1 on answers and their terminators; same length
  std::vector<Span> spans;          // the answers in `text`, in code points
};

// Renders the conversation, encodes it once with offsets and supervises the tokens that lie wholly inside of an answer.
//
// Where the template has {% generation %} blocks, these are the answers. Elsewhere an answer begins where the
// generation prompt of inference ends, and ends behind its terminator. It is found from the structure of the messages
// (see locate_answers), never by a search for headers: a header that a user types stays unsupervised. Template text in
// front of an answer that has none of its own, such as an empty think block, is not supervised. Arguments of tool calls
// that are JSON text of an object are taken as that object.
//
// Throws Error{data}: the template refuses the messages, or an answer cannot be located.
SupervisedText supervise(const ChatTemplate& chat_template, const Tokenizer& tokenizer, const OrderedJson& messages,
                         const SupervisionOptions& options = {});

// 1 for every token whose characters lie wholly inside of one of the spans.
std::vector<uint8_t> tokens_inside(const std::vector<Span>& token_offsets, const std::vector<Span>& spans);

// One assistant message in the rendered text. Positions are code points.
struct LocatedAnswer {
  int64_t message = 0;      // its index
  int64_t prompt_end = 0;   // where the generation prompt of inference ends
  int64_t begin = 0;        // the same, or behind template text that stands for an absent reasoning
  int64_t content_end = 0;  // behind the content; tool calls may follow
  int64_t limit = 0;        // where the next message's content begins at the latest
};

// Finds the assistant messages without reading what users wrote: the conversation is rendered again with the content of
// one message, and of all messages, replaced by characters that occur nowhere in it. What changes is the content, what
// stands between the replaced characters is the template. A message whose content the template leaves out (tool calls)
// is found by rendering the messages before it, when that is how the whole text begins.
// Throws Error{data} naming the message for which neither works.
std::vector<LocatedAnswer> locate_answers(const ChatTemplate& chat_template, const OrderedJson& messages,
                                          const RenderOptions& options, const std::string& rendered);

}  // namespace pacer::text
