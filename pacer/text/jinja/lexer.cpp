#include "pacer/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/string_literal.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

// Longer symbols first.
constexpr std::array<std::string_view, 26> kSymbols{"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

std::string normalised(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

bool is_digit_ascii(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  Lexer(std::string source, const std::string& place) : source_(std::move(source)), place_(place) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) text_and_tag();
    move_to(source_.size());
    emit(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) { syntax_error(place_, here_, message); }

  // The place follows the position, so that it is computed once for every byte.
  void move_to(size_t position) {
    for (; at_ < position; ++at_) {
      const auto byte = static_cast<unsigned char>(source_[at_]);
      if (byte == '\n') {
        ++here_.line;
        here_.column = 1;
      } else if ((byte & 0xC0) != 0x80) {
        ++here_.column;
      }
    }
  }

  void emit(TokenType type, std::string text) { tokens_.push_back({type, std::move(text), here_}); }

  bool starts(std::string_view prefix, size_t position) const {
    return position <= source_.size() && source_.compare(position, prefix.size(), prefix) == 0;
  }

  size_t skip_space(size_t position) const {
    while (position < source_.size()) {
      size_t next = position;
      if (!is_space(decode_at(source_, next))) break;
      position = next;
    }
    return position;
  }

  size_t next_tag() const {
    for (size_t open = source_.find('{', at_); open != std::string::npos; open = source_.find('{', open + 1)) {
      if (open + 1 < source_.size() && std::string_view("{%#").find(source_[open + 1]) != std::string_view::npos) {
        return open;
      }
    }
    return std::string::npos;
  }

  void text_and_tag() {
    const size_t tag = next_tag();
    if (tag == std::string::npos) {
      emit(TokenType::data, source_.substr(at_));
      move_to(source_.size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign =
        tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : '\0';
    emit_data(tag, sign, kind != '{');
    move_to(tag);
    const size_t content = tag + (sign != '\0' ? 3 : 2);
    if (kind == '#') {
      comment(content);
    } else if (kind == '%') {
      if (const auto raw = raw_begin(content)) {
        raw_block(*raw);
      } else {
        emit(TokenType::block_begin, "{%");
        move_to(content);
        inside("%}", TokenType::block_end);
      }
    } else {
      emit(TokenType::variable_begin, "{{");
      move_to(content);
      inside("}}", TokenType::variable_end);
    }
  }

  // The text up to a tag, without what the tag's sign and lstrip_blocks take away.
  void emit_data(size_t end, char sign, bool strips_line) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      while (!text.empty()) {
        size_t start = text.size();
        do {
          --start;
        } while (start > 0 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80);
        size_t next = start;
        if (!is_space(decode_at(text, next))) break;
        text = text.substr(0, start);
      }
    } else if (sign == '\0' && strips_line) {
      const size_t newline = text.rfind('\n');
      const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
      if (newline != std::string_view::npos || line_starting_) {
        bool blank = true;
        for (size_t at = line; at < text.size() && blank;) blank = is_space(decode_at(text, at));
        if (blank) text = text.substr(0, line);
      }
    }
    if (!text.empty()) emit(TokenType::data, std::string(text));
  }

  // End of a tag at `position`: "-%}" takes white space with it, "%}" of a block one newline. Length, or nothing.
  std::optional<size_t> tag_end(std::string_view close, size_t position, bool trim) const {
    if (starts(close, position)) {
      const size_t end = position + close.size();
      return trim && end < source_.size() && source_[end] == '\n' ? end + 1 : end;
    }
    if (position >= source_.size() || !starts(close, position + 1)) return std::nullopt;
    if (source_[position] == '-') return skip_space(position + 1 + close.size());
    if (source_[position] == '+' && close != "}}") return position + 1 + close.size();
    return std::nullopt;
  }

  void leave_tag(size_t end) {
    line_starting_ = end > at_ && source_[end - 1] == '\n';
    move_to(end);
  }

  void comment(size_t position) {
    for (; position < source_.size(); ++position) {
      if (const auto end = tag_end("#}", position, true)) {
        leave_tag(*end);
        return;
      }
    }
    fail("Missing end of comment tag");
  }

  std::optional<size_t> raw_begin(size_t position) const {
    position = skip_space(position);
    if (!starts("raw", position)) return std::nullopt;
    position = skip_space(position + 3);
    if (starts("-%}", position)) return skip_space(position + 3);
    if (starts("%}", position)) return position + 2;
    return std::nullopt;
  }

  void raw_block(size_t begin) {
    const Place opened = here_;
    leave_tag(begin);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign =
          tag + 2 < source_.size() && (source_[tag + 2] == '-' || source_[tag + 2] == '+') ? source_[tag + 2] : '\0';
      size_t position = skip_space(tag + (sign != '\0' ? 3 : 2));
      if (!starts("endraw", position)) continue;
      const auto end = tag_end("%}", skip_space(position + 6), true);
      if (!end) continue;
      emit_data(tag, sign, true);
      leave_tag(*end);
      return;
    }
    here_ = opened;
    fail("Missing end of raw directive");
  }

  void inside(std::string_view close, TokenType end_type) {
    std::string brackets;
    while (true) {
      if (brackets.empty()) {
        if (const auto end = tag_end(close, at_, end_type == TokenType::block_end)) {
          emit(end_type, std::string(close));
          leave_tag(*end);
          return;
        }
      }
      if (at_ >= source_.size()) {
        if (!brackets.empty())
          fail("unexpected end of template, expected '" + brackets.substr(brackets.size() - 1) + "'");
        fail("unexpected end of template inside a tag");
      }
      size_t next = at_;
      const char32_t c = decode_at(source_, next);
      if (is_space(c)) {
        move_to(next);
      } else if (c < 0x80 && is_digit_ascii(static_cast<char>(c))) {
        number();
      } else if (is_word(c)) {
        name();
      } else if (c == '\'' || c == '"') {
        string();
      } else {
        symbol(brackets);
      }
    }
  }

  void name() {
    size_t end = at_;
    while (end < source_.size()) {
      size_t next = end;
      if (!is_word(decode_at(source_, next))) break;
      end = next;
    }
    emit(TokenType::name, source_.substr(at_, end - at_));
    move_to(end);
  }

  // digits with single underscores between them; returns the end
  size_t digits(size_t position, bool (*is)(char) = is_digit_ascii) const {
    while (position < source_.size()) {
      if (is(source_[position])) {
        ++position;
      } else if (source_[position] == '_' && position + 1 < source_.size() && is(source_[position + 1])) {
        position += 2;
      } else {
        break;
      }
    }
    return position;
  }

  void number() {
    const auto put = [&](TokenType type, size_t end) {
      std::string text = source_.substr(at_, end - at_);
      std::erase(text, '_');
      emit(type, std::move(text));
      move_to(end);
    };
    if (source_[at_] == '0' && at_ + 2 < source_.size()) {
      const char base = static_cast<char>(source_[at_ + 1] | 0x20);
      bool (*is)(char) = nullptr;
      if (base == 'x') is = [](char c) { return is_digit_ascii(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); };
      if (base == 'o') is = [](char c) { return c >= '0' && c <= '7'; };
      if (base == 'b') is = [](char c) { return c == '0' || c == '1'; };
      if (is != nullptr) {
        const size_t end = digits(at_ + 2, is);
        if (end > at_ + 2) return put(TokenType::integer, end);
      }
    }
    const size_t whole = digits(at_);
    size_t end = whole;
    // "foo.0.1" is two items, not an item 0.1
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    if (!after_dot) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit_ascii(source_[end + 1])) end = digits(end + 1);
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t exponent = end + 1;
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
        if (exponent < source_.size() && is_digit_ascii(source_[exponent])) end = digits(exponent);
      }
    }
    if (end == whole && source_[at_] == '0' && source_.find_first_not_of("0_", at_) < whole) {
      fail("a decimal number cannot begin with 0");
    }
    put(end == whole ? TokenType::integer : TokenType::real, end);
  }

  void string() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) {
      fail("unexpected char " + string_repr(std::string(1, quote)) + " at " +
           std::to_string(code_points(std::string_view(source_).substr(0, at_))));
    }
    try {
      emit(TokenType::string, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
    } catch (const Failure& failure) {
      fail(failure.what());
    }
    move_to(end + 1);
  }

  void symbol(std::string& brackets) {
    for (const std::string_view symbol : kSymbols) {
      if (!starts(symbol, at_)) continue;
      const char c = symbol[0];
      if (symbol.size() == 1 && (c == '(' || c == '[' || c == '{')) {
        brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (symbol.size() == 1 && (c == ')' || c == ']' || c == '}')) {
        if (brackets.empty()) fail("unexpected '" + std::string(symbol) + "'");
        if (brackets.back() != c) {
          fail("unexpected '" + std::string(symbol) + "', expected '" + brackets.substr(brackets.size() - 1) + "'");
        }
        brackets.pop_back();
      }
      emit(TokenType::symbol, std::string(symbol));
      move_to(at_ + symbol.size());
      return;
    }
    size_t next = at_;
    std::string character;
    append_utf8(character, decode_at(source_, next));
    fail("unexpected char " + string_repr(character) + " at " +
         std::to_string(code_points(std::string_view(source_).substr(0, at_))));
  }

  const std::string source_;
  const std::string& place_;
  size_t at_ = 0;
  Place here_;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

void syntax_error(const std::string& place, const Place& at, const std::string& message) {
  throw Error(ErrorKind::format,
              place + ":" + std::to_string(at.line) + ":" + std::to_string(at.column) + ": " + message,
              "the chat template of this model is not valid Jinja; correct it at that place");
}

std::vector<Token> tokenize(std::string_view source, const std::string& place) {
  const size_t invalid = find_invalid_utf8(source);
  if (invalid != std::string_view::npos) {
    throw Error(ErrorKind::format, place + ": byte " + std::to_string(invalid) + " is not UTF-8",
                "templates are UTF-8 text");
  }
  return Lexer(normalised(source), place).run();
}

}  // namespace pacer::text::jinja
