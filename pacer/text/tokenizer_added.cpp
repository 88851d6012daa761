#include "pacer/text/tokenizer_added.h"

#include <utility>

#include "pacer/text/bpe_vocabulary.h"
#include "pacer/text/tokenizer_unicode.h"

namespace pacer::text {
namespace {

size_t strip_right(std::string_view text) {  // the length without white space at the end
  size_t end = text.size();
  while (end > 0) {
    const CodePoint c = decode_utf8_before(text, end);
    if (!is_white_space(c.value)) break;
    end -= c.length;
  }
  return end;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = decode_utf8(text, at);
    if (!is_white_space(c.value)) break;
    at += c.length;
  }
  return at;
}

bool inside_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word_character(decode_utf8_before(text, begin).value)) ||
         (end < text.size() && is_word_character(decode_utf8(text, end).value));
}

}  // namespace

void AddedTokenMatcher::build(const std::vector<std::pair<std::string, int32_t>>& patterns,
                              const std::map<int32_t, AddedToken>& flags) {
  flags_ = flags;
  ends_.assign(1, -1);
  for (const auto& [text, id] : patterns) {
    if (text.empty()) continue;  // normalised away
    int32_t node = 0;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      const uint64_t key = (static_cast<uint64_t>(node) << 8) | byte;
      const auto [edge, fresh] = edges_.try_emplace(key, static_cast<int32_t>(ends_.size()));
      if (fresh) ends_.push_back(-1);
      if (node == 0) roots_[byte] = edge->second;
      node = edge->second;
    }
    if (ends_[static_cast<size_t>(node)] < 0) ends_[static_cast<size_t>(node)] = id;
  }
}

size_t AddedTokenMatcher::longest(std::string_view text, size_t at, int32_t& id) const {
  int32_t node = roots_[static_cast<unsigned char>(text[at])];
  size_t end = at;
  for (size_t i = at + 1; node != 0; ++i) {
    if (const int32_t found = ends_[static_cast<size_t>(node)]; found >= 0) end = i, id = found;
    if (i >= text.size()) break;
    const auto edge = edges_.find((static_cast<uint64_t>(node) << 8) | static_cast<unsigned char>(text[i]));
    node = edge == edges_.end() ? 0 : edge->second;
  }
  return end;
}

void AddedTokenMatcher::split(std::string_view text, std::vector<AddedMatch>& out) const {
  size_t done = 0;
  const auto add = [&](size_t begin, size_t end, int32_t id) {
    out.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end), id});
  };
  for (size_t at = 0; !empty() && at < text.size();) {
    int32_t id = -1;
    size_t end = roots_[static_cast<unsigned char>(text[at])] == 0 ? at : longest(text, at, id);
    if (end == at) {
      ++at;
      continue;
    }
    size_t begin = at;
    at = end;  // also when the match is refused below: the search goes on behind it
    const AddedToken& token = flags_.at(id);
    if (token.single_word && inside_word(text, begin, end)) continue;
    if (token.lstrip) begin = std::max(strip_right(text.substr(0, begin)), done);
    if (token.rstrip) end += leading_space(text.substr(end));
    if (done < begin) add(done, begin, -1);
    add(begin, end, id);
    done = end;
  }
  if (done < text.size()) add(done, text.size(), -1);
}

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const Normalizer* normalizer) {
  std::vector<std::pair<std::string, int32_t>> raw, normalized;
  RegexScratch scratch;
  // Special ones first: the reference lists them so, and of equal texts the first counts.
  for (const bool special : {true, false}) {
    for (const AddedToken& token : tokens) {
      if (token.special != special) continue;
      if (!token.normalized) {
        raw.emplace_back(token.content, token.id);
        continue;
      }
      MappedText text;
      text.assign(token.content, 0, false);
      if (normalizer != nullptr) normalizer->apply(text, scratch);
      normalized.emplace_back(text.bytes, token.id);
    }
  }
  for (AddedToken& token : tokens) {
    by_content_.emplace(token.content, token.id);
    by_id_.emplace(token.id, std::move(token));
  }
  raw_.build(raw, by_id_);
  normalized_.build(normalized, by_id_);
}

const AddedToken* AddedTokens::find(int64_t id) const {
  if (id < 0 || id > Vocabulary::kMaxId) return nullptr;
  const auto found = by_id_.find(static_cast<int32_t>(id));
  return found == by_id_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = by_content_.find(content);
  return found == by_content_.end() ? nullptr : &by_id_.at(found->second);
}

std::vector<AddedToken> read_added_tokens(const Component& root) {
  std::vector<AddedToken> tokens;
  if (!root.has("added_tokens")) return tokens;
  std::map<int64_t, std::string> by_id;
  std::map<std::string, int64_t> by_content;
  for (const Component& entry : root.list("added_tokens")) {
    AddedToken token;
    const int64_t id = entry.integer("id");
    if (id < 0 || id > Vocabulary::kMaxId) {
      entry.at("id").refuse(std::to_string(id) + "; allowed: 0 to " + std::to_string(Vocabulary::kMaxId));
    }
    token.id = static_cast<int32_t>(id);
    token.content = entry.text("content");
    if (token.content.empty()) entry.at("content").refuse("an empty token");
    token.single_word = entry.flag_or("single_word", false);
    token.lstrip = entry.flag_or("lstrip", false);
    token.rstrip = entry.flag_or("rstrip", false);
    token.normalized = entry.flag_or("normalized", true);
    token.special = entry.flag_or("special", false);
    if (!by_id.emplace(id, token.content).second || !by_content.emplace(token.content, id).second) {
      entry.refuse("the token \"" + token.content + "\" or its id " + std::to_string(id) + " is listed twice");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace pacer::text
