// The regular expressions of tokenizer.json: written for Oniguruma, run by PCRE2 with its just-in-time compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace pacer::text {

// The same expression in PCRE2's language (with UTF, UCP and MULTILINE set). Where the two engines read a construct
// differently it is rewritten (\s, \w, \h, \b, {n,m}+ ...) or, when that is not possible, refused: throws Error{format}
// that names `place` and the construct.
std::string translate_regex(std::string_view pattern, const std::string& place);

// What matching needs besides the expression, made when first used; not shared between threads.
class RegexScratch {
 public:
  RegexScratch();
  ~RegexScratch();
  RegexScratch(const RegexScratch&) = delete;
  RegexScratch& operator=(const RegexScratch&) = delete;

  // A text of so many bytes is matched from here on: half a second of processor time and two more per megabyte are what
  // all expressions together may take for it. Ordinary ones take a tenth of a second per megabyte; expressions from
  // strangers can be built to look at the rest of the text from every place in it.
  void begin_text(size_t bytes);

 private:
  friend class Pattern;
  void check_time();          // throws Error{data}
  double allowed_until_ = 0;  // thread_cpu_seconds(); 0: no text was begun, no bound
  uint32_t searches_ = 0;
  struct Data;
  std::unique_ptr<Data> data_;
};

struct Match {
  size_t begin;
  size_t end;  // bytes
};

// A regular expression or a literal text; immutable, usable from several threads.
class Pattern {
 public:
  static Pattern literal(std::string text);  // not empty
  // Throws Error{format} naming `place`.
  static Pattern regex(std::string_view oniguruma, const std::string& place);

  // The first match that starts at `start` or later. `subject` is UTF-8. Throws Error{data} when the expression needs
  // more memory, steps or time than allowed.
  bool search(std::string_view subject, size_t start, RegexScratch& scratch, Match& match) const;

  // Calls found(match) for every match from left to right; an empty match right after another one is skipped.
  template <typename Found>
  void for_each_match(std::string_view subject, RegexScratch& scratch, Found&& found) const {
    size_t start = 0, last_end = std::string_view::npos;
    Match match;
    while (start <= subject.size() && search(subject, start, scratch, match)) {
      if (match.begin == match.end && match.end == last_end) {
        start = next_code_point(subject, match.end);
        continue;
      }
      found(match);
      start = last_end = match.end;
    }
  }

 private:
  Pattern() = default;
  static size_t next_code_point(std::string_view subject, size_t at);
  struct Code;
  std::shared_ptr<const Code> code_;  // null for a literal
  std::string source_;                // the literal, or the expression for messages
};

bool matches_word_character(char32_t c);

}  // namespace pacer::text
