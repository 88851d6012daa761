#include "pacer/text/pretokenizer.h"

#include <optional>
#include <utility>
#include <vector>

#include "pacer/text/pretokenizer_split.h"
#include "pacer/text/tokenizer_byte_alphabet.h"
#include "pacer/text/tokenizer_unicode.h"

namespace pacer::text {

SplitBehavior parse_split_behavior(const Component& config, const std::string& key) {
  const std::string name = config.text(key);
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  config.at(key).refuse(
      "\"" + name +
      "\" is not supported; supported: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

namespace {

// The pattern of GPT-2, which the byte-level pre-tokenizer of tokenizer.json applies unless told otherwise.
constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

void split_at_pattern(SplitText& text, const Pattern& pattern, SplitBehavior behavior, bool invert,
                      RegexScratch& scratch) {
  split_pieces(text, behavior, invert, [&](std::string_view piece, auto&& found) {
    pattern.for_each_match(piece, scratch, [&](const Match& match) { found(match.begin, match.end); });
  });
}

// Writes every text piece anew: write(piece, append), where append(bytes, origin) adds to the new text.
template <typename Write>
void rewrite_pieces(SplitText& text, Write&& write) {
  text.next_storage.clear();
  text.next_origins.clear();
  text.next_pieces.clear();
  const auto append = [&](std::string_view bytes, size_t origin_byte) {
    text.next_storage += bytes;
    if (text.tracked)
      text.next_origins.insert(text.next_origins.end(), bytes.size(), Origin(text.origins[origin_byte]));
  };
  for (const Piece& piece : text.pieces) {
    const auto begin = static_cast<uint32_t>(text.next_storage.size());
    if (piece.id >= 0) {
      for (uint32_t i = piece.begin; i < piece.end; ++i) append(text.bytes.substr(i, 1), i);
    } else {
      write(piece, append);
    }
    text.next_pieces.push_back({begin, static_cast<uint32_t>(text.next_storage.size()), piece.id});
  }
  text.adopt_text();
}

class Sequence : public PreTokenizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<const PreTokenizer>> parts) : parts_(std::move(parts)) {}
  void apply(SplitText& text, RegexScratch& scratch) const override {
    for (const auto& part : parts_) part->apply(text, scratch);
  }
  bool needs_origins() const override {
    for (const auto& part : parts_) {
      if (part->needs_origins()) return true;
    }
    return false;
  }

 private:
  std::vector<std::unique_ptr<const PreTokenizer>> parts_;
};

class Split : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(SplitText& text, RegexScratch& scratch) const override {
    split_at_pattern(text, pattern_, behavior_, invert_, scratch);
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class ByteLevel : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) pattern_ = Pattern::regex(kGpt2Pattern, "built in");
  }

  void apply(SplitText& text, RegexScratch& scratch) const override {
    if (add_prefix_space_) {
      rewrite_pieces(text, [&](const Piece& piece, auto&& append) {
        if (text.bytes[piece.begin] != ' ') append(" ", piece.begin);
        for (uint32_t i = piece.begin; i < piece.end; ++i) append(text.bytes.substr(i, 1), i);
      });
    }
    if (pattern_) split_at_pattern(text, *pattern_, SplitBehavior::isolated, false, scratch);
    rewrite_pieces(text, [&](const Piece& piece, auto&& append) {
      for (uint32_t i = piece.begin; i < piece.end; ++i) {
        append(byte_alphabet().text_of(static_cast<unsigned char>(text.bytes[i])), i);
      }
    });
  }

 private:
  bool add_prefix_space_;
  std::optional<Pattern> pattern_;
};

class Digits : public PreTokenizer {
 public:
  explicit Digits(bool individual) : behavior_(individual ? SplitBehavior::isolated : SplitBehavior::contiguous) {}
  void apply(SplitText& text, RegexScratch&) const override { split_at_characters(text, behavior_, is_number); }

 private:
  SplitBehavior behavior_;
};

class Punctuation : public PreTokenizer {
 public:
  explicit Punctuation(SplitBehavior behavior) : behavior_(behavior) {}
  void apply(SplitText& text, RegexScratch&) const override { split_at_characters(text, behavior_, is_punctuation); }

 private:
  SplitBehavior behavior_;
};

class WhitespaceSplit : public PreTokenizer {
 public:
  void apply(SplitText& text, RegexScratch&) const override {
    split_at_characters(text, SplitBehavior::removed, is_white_space);
  }
};

class CharDelimiterSplit : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}
  void apply(SplitText& text, RegexScratch&) const override {
    split_at_characters(text, SplitBehavior::removed, [&](char32_t c) { return c == delimiter_; });
  }

 private:
  char32_t delimiter_;
};

// Runs of word characters and runs of other visible characters; white space goes.
class Whitespace : public PreTokenizer {
 public:
  void apply(SplitText& text, RegexScratch&) const override {
    split_pieces(text, SplitBehavior::removed, /*invert=*/true, [](std::string_view piece, auto&& found) {
      enum class Kind { space, word, other };
      const auto kind_of = [](char32_t c) {
        return is_white_space(c) ? Kind::space : is_word_character(c) ? Kind::word : Kind::other;
      };
      for (size_t at = 0; at < piece.size();) {
        CodePoint c = decode_utf8(piece, at);
        const Kind kind = kind_of(c.value);
        size_t end = at + c.length;
        while (end < piece.size() && kind_of((c = decode_utf8(piece, end)).value) == kind) end += c.length;
        if (kind != Kind::space) found(at, end);
        at = end;
      }
    });
  }
};

// Spaces written as a visible character, and cut in front of it (SentencePiece, Kudo and Richardson 2018).
class Metaspace : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend) {
    if (split) boundary_ = Pattern::literal(replacement_);
  }

  bool needs_origins() const override { return prepend_ == Prepend::first; }

  void apply(SplitText& text, RegexScratch& scratch) const override {
    rewrite_pieces(text, [&](const Piece& piece, auto&& append) {
      const std::string_view bytes = text.text_of(piece);
      const bool marked = bytes.starts_with(' ') || bytes.starts_with(replacement_);
      const bool prepend =
          prepend_ == Prepend::always || (prepend_ == Prepend::first && text.origins[piece.begin].begin == 0);
      if (prepend && !marked) append(replacement_, piece.begin);
      for (uint32_t i = piece.begin; i < piece.end; ++i) {
        append(text.bytes[i] == ' ' ? std::string_view(replacement_) : text.bytes.substr(i, 1), i);
      }
    });
    if (boundary_) split_at_pattern(text, *boundary_, SplitBehavior::merged_with_next, false, scratch);
  }

 private:
  std::string replacement_;
  Prepend prepend_;
  std::optional<Pattern> boundary_;
};

std::unique_ptr<const PreTokenizer> make_metaspace(const Component& config) {
  // Older files have add_prefix_space instead of prepend_scheme.
  std::string scheme = config.flag_or("add_prefix_space", true) ? "always" : "never";
  scheme = config.text_or("prepend_scheme", scheme);
  Metaspace::Prepend prepend;
  if (scheme == "always") {
    prepend = Metaspace::Prepend::always;
  } else if (scheme == "first") {
    prepend = Metaspace::Prepend::first;
  } else if (scheme == "never") {
    prepend = Metaspace::Prepend::never;
  } else {
    config.at("prepend_scheme").refuse("\"" + scheme + "\" is not supported; supported: always, first, never");
  }
  std::string replacement;
  append_utf8(replacement, config.character("replacement"));
  return std::make_unique<Metaspace>(replacement, prepend, config.flag_or("split", true));
}

}  // namespace

std::unique_ptr<const PreTokenizer> make_pretokenizer(const Component& config) {
  if (config.is_null()) return nullptr;
  const std::string type = config.type();
  if (type == "Sequence") {
    std::vector<std::unique_ptr<const PreTokenizer>> parts;
    for (const Component& part : config.list("pretokenizers")) {
      if (part.is_null()) part.refuse("a pre-tokenizer expected, found null");
      parts.push_back(make_pretokenizer(part));
    }
    return std::make_unique<Sequence>(std::move(parts));
  }
  if (type == "Split") {
    return std::make_unique<Split>(make_pattern(config.at("pattern")), parse_split_behavior(config, "behavior"),
                                   config.flag_or("invert", false));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevel>(config.flag_or("add_prefix_space", true), config.flag_or("use_regex", true));
  }
  if (type == "Digits") return std::make_unique<Digits>(config.flag_or("individual_digits", false));
  if (type == "Metaspace") return make_metaspace(config);
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") return std::make_unique<WhitespaceSplit>();
  if (type == "CharDelimiterSplit") return std::make_unique<CharDelimiterSplit>(config.character("delimiter"));
  if (type == "Punctuation") {
    return std::make_unique<Punctuation>(config.has("behavior") ? parse_split_behavior(config, "behavior")
                                                                : SplitBehavior::isolated);
  }
  config.refuse_type({"Sequence", "Split", "ByteLevel", "Digits", "Metaspace", "Whitespace", "WhitespaceSplit",
                      "Punctuation", "CharDelimiterSplit"});
}

}  // namespace pacer::text
