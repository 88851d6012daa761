// Chat templates: the Jinja language as Hugging Face tokenizers use it, in a sandbox without side effects.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::text {

// A template is a program that came with a model: it must end, and must not fill the memory.
struct RenderLimits {
  int64_t steps = 5'000'000;            // nodes that run and elements that filters look at
  uint64_t bytes = uint64_t{24} << 20;  // of text and lists that are made, all together ...
  uint64_t bytes_per_input = 64;        // ... and so many more for each byte of the messages and variables
  int depth = 500;                      // nested expressions, blocks and calls
};

struct RenderOptions {
  bool add_generation_prompt = false;
  OrderedJson tools;                              // null when absent
  OrderedJson documents;                          // null when absent
  OrderedJson variables = OrderedJson::object();  // enable_thinking, bos_token, ...
  std::optional<std::tm> clock;                   // what strftime_now sees; the local time when absent
  RenderLimits limits;
};

using Span = std::pair<int64_t, int64_t>;  // [begin, end) in code points of the rendered text

struct Rendered {
  std::string text;
  std::vector<Span> generation;  // {% generation %} blocks
  // A generation block ran inside of a macro or a captured block, where its place in the text is not known.
  bool generation_unplaced = false;
};

class ChatTemplate {
 public:
  // Throws Error{format} with template line and column.
  static std::shared_ptr<const ChatTemplate> parse(const std::string& source, const std::string& place);
  virtual ~ChatTemplate() = default;
  // messages: a list of objects {role, content, ...}. Throws Error{data}: raise_exception's message word for word, or
  // what failed with line and column. Steps, output size and recursion are bounded.
  virtual Rendered render(const OrderedJson& messages, const RenderOptions& options = {}) const = 0;
  virtual const std::string& source() const = 0;
  virtual std::vector<std::string> constructs()
      const = 0;  // what the template uses ("macro", "tojson", "namespace"), sorted
};

}  // namespace pacer::text
