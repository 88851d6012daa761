// Added tokens: texts that are found before anything else is done and become one token each.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pacer/text/normalizer.h"
#include "pacer/text/tokenizer_component.h"

namespace pacer::text {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  // not inside a word
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // looked for after normalisation, and normalised itself
  bool special = false;      // left out of decoded text on request
};

// A stretch of text: an added token, or what lies between (id -1).
struct AddedMatch {
  uint32_t begin, end;  // bytes
  int32_t id;
};

// Finds the leftmost token, at one place the longest; then goes on behind it.
class AddedTokenMatcher {
 public:
  // patterns: text and id; of equal texts the first counts. flags: by id.
  void build(const std::vector<std::pair<std::string, int32_t>>& patterns, const std::map<int32_t, AddedToken>& flags);
  bool empty() const { return edges_.empty(); }
  // Cuts the whole of `text`; an empty text gives nothing.
  void split(std::string_view text, std::vector<AddedMatch>& out) const;

 private:
  // The longest pattern that starts at `at`: its end, or `at` when there is none.
  size_t longest(std::string_view text, size_t at, int32_t& id) const;

  std::array<int32_t, 256> roots_{};             // node reached from the start, 0: none
  std::unordered_map<uint64_t, int32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> ends_;                    // by node: id of the pattern that ends there, or -1
  std::map<int32_t, AddedToken> flags_;
};

// All added tokens of a tokenizer.
class AddedTokens {
 public:
  AddedTokens() = default;
  // normalizer may be null.
  AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer);

  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }
  const AddedToken* find(int64_t id) const;
  const AddedToken* find(std::string_view content) const;
  const AddedTokenMatcher& raw() const { return raw_; }                // on the caller's text
  const AddedTokenMatcher& normalized() const { return normalized_; }  // on normalised text

 private:
  std::map<int32_t, AddedToken> by_id_;
  std::map<std::string, int32_t, std::less<>> by_content_;
  AddedTokenMatcher raw_, normalized_;
};

// Reads the array "added_tokens". Throws Error{format} with the path.
std::vector<AddedToken> read_added_tokens(const Component& root);

}  // namespace pacer::text
