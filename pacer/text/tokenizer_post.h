// The "post_processor" part of tokenizer.json: what happens to the tokens of a text at the end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pacer/text/tokenizer.h"
#include "pacer/text/tokenizer_component.h"

namespace pacer::text {

// White space at both ends of a token, in code points; a byte-level space counts.
struct TokenSpaces {
  uint32_t leading = 0, trailing = 0;
};
TokenSpaces count_spaces(std::string_view token);

// Immutable, usable from several threads.
class PostProcessor {
 public:
  PostProcessor() = default;
  // A JSON null means: nothing. Throws Error{format} naming what is not supported.
  explicit PostProcessor(const Component& config);

  // Throws Error{format} when a token that is put around texts has no id below `size`.
  void require_ids_below(int64_t size, const std::string& place) const;

  bool trims_offsets() const { return trims_; }  // then apply() needs `spaces`
  // spaces: one per token, or empty when offsets are not trimmed or not asked for.
  void apply(Encoding& encoding, const std::vector<TokenSpaces>& spaces, const EncodeOptions& options) const;

 private:
  struct Step {
    bool trim = false;              // leaves white space out of offsets ...
    bool add_prefix_space = false;  // ... save the one that was put before the text
    bool insert = false;            // puts ids around the text
    std::vector<int64_t> before, after;
  };
  void add(const Component& config);
  void add_template(const Component& config);
  static void trim(Encoding& encoding, const std::vector<TokenSpaces>& spaces, bool add_prefix_space);
  std::vector<Step> steps_;
  bool trims_ = false;
};

}  // namespace pacer::text
