// The loss masks of two published trainers, as they compute them: for comparison with drafts that were trained there.
// Both search the rendered text for an assistant header, so a header typed by a user is supervised as well. Own
// trainings use supervise().
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pacer/text/supervision.h"

namespace pacer::text {

// How answers look in the text of one family of models.
struct ReferenceFormat {
  // Where an answer ends: at end_of_turn; the same behind an optional "</think>"; at "[Round N] USER:"; at any of the
  // ignored texts. The end of the text ends it, too.
  enum class Pattern { general, glm, longcat, inkling };
  std::string name;
  std::string assistant_header, end_of_turn;
  std::string system_prompt;  // put in front when a conversation has no system message; may be empty
  Pattern pattern = Pattern::general;
  bool keeps_reasoning = false;         // messages keep reasoning_content, name and tool_call_id
  std::optional<bool> enable_thinking;  // given to the template
  std::vector<std::string> ignored;     // never supervised, wherever they stand
  std::string answer_prefix;            // put in front of answers that lack it, and not supervised
};

enum class ReferenceRule {
  deepspec,   // all turns; roles must be in order
  specforge,  // all turns; accepts from/value and human/gpt, cuts at the first role out of order
  specforge_last_turn_only,
};

struct ReferenceOptions {
  ReferenceRule rule = ReferenceRule::deepspec;
  std::string format = "qwen";
  int64_t max_length = 4096;
  // Leaves out matches that are no assistant message: the correction of what the search gets wrong.
  bool messages_only = false;
  RenderOptions render;
};

// Throws Error{usage} for a name that is not known, naming the known ones.
const ReferenceFormat& reference_format(const std::string& name);
std::vector<std::string> reference_format_names();

// A token is supervised from the token count of the text before a match to that of the text up to its end, both of
// texts encoded on their own; spans lists all matches, also those that last_turn_only leaves out.
// Throws Error{data}: a conversation the rule refuses, or the template.
SupervisedText supervise_by_reference(const ChatTemplate& chat_template, const Tokenizer& tokenizer,
                                      const OrderedJson& messages, const ReferenceOptions& options);

// The messages as the rule gives them to the template.
OrderedJson reference_messages(const OrderedJson& messages, const ReferenceFormat& format, ReferenceRule rule);

}  // namespace pacer::text
