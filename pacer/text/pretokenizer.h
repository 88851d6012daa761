// The "pre_tokenizer" part of tokenizer.json: text cut into the pieces inside which tokens are merged.
#pragma once

#include <memory>

#include "pacer/text/tokenizer_component.h"
#include "pacer/text/tokenizer_regex.h"
#include "pacer/text/tokenizer_text.h"

namespace pacer::text {

// Immutable, usable from several threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(SplitText& text, RegexScratch& scratch) const = 0;
  // True when the pieces depend on where a piece stood in the caller's text; then origins are always tracked.
  virtual bool needs_origins() const { return false; }
};

// Null for a JSON null. Throws Error{format} naming what is not supported.
std::unique_ptr<const PreTokenizer> make_pretokenizer(const Component& config);

}  // namespace pacer::text
