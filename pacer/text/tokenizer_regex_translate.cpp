// From Oniguruma's dialect to PCRE2's. Both know the same core; this file lists where they part.
#include <cctype>
#include <vector>

#include "pacer/base/error.h"
#include "pacer/text/tokenizer_regex.h"

namespace pacer::text {
namespace {

// Oniguruma's \s is White_Space; PCRE2's has U+180E besides. Written so that they stand inside brackets.
constexpr std::string_view kSpace =
    "\\x09-\\x0D\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x00-\\x08\\x0E-\\x1F\\x21-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}\\x{200B}-\\x{2027}"
    "\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}";
// Oniguruma's \w counts marks, letter-like symbols and all connectors; PCRE2's counts letters, numbers and "_".
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kHex = "0-9A-Fa-f";

class Translator {
 public:
  Translator(std::string_view pattern, const std::string& place) : in_(pattern), place_(place) {}

  std::string run() {
    if (looking_at("(?i)")) copy(4);  // elsewhere the engines disagree about how far it reaches
    while (at_ < in_.size()) step();
    return out_;
  }

 private:
  bool looking_at(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(size_t count) {
    out_ += in_.substr(at_, count);
    at_ += count;
  }

  [[noreturn]] void refuse(std::string_view construct) const {
    throw Error(ErrorKind::format,
                place_ + ": \"" + std::string(construct) + "\" at byte " + std::to_string(at_) +
                    " of the regular expression \"" + std::string(in_) + "\" is not supported",
                "write the expression without it, or report this tokenizer");
  }

  void step() {
    const char c = in_[at_];
    if (c == '(') {
      open_group();
    } else if (c == ')') {
      if (groups_.empty()) refuse(")");
      atom_ = groups_.back();
      groups_.pop_back();
      copy(1);
    } else if (c == '|') {
      copy(1);
      atom_ = out_.size();
    } else if (c == '*' || c == '+' || c == '?') {
      copy(1);
      if (looking_at("?") || looking_at("+")) copy(1);  // lazy and possessive mean the same
    } else if (c == '{') {
      interval();
    } else {
      atom_ = out_.size();
      if (c == '[') {
        bracket();
      } else if (c == '\\') {
        escape();
      } else {
        copy(1);
        while (at_ < in_.size() && (in_[at_] & 0xC0) == 0x80) copy(1);
      }
    }
  }

  void open_group() {
    groups_.push_back(out_.size());
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (looking_at(head)) return copy(head.size());
    }
    if (looking_at("(?") || looking_at("(*")) refuse(in_.substr(at_, 4));
    copy(1);
  }

  void interval() {
    const size_t end = in_.find('}', at_);
    std::string body(in_.substr(at_ + 1, end == std::string_view::npos ? end : end - at_ - 1));
    if (end == std::string_view::npos || body.empty() || body.find_first_not_of("0123456789,") != std::string::npos) {
      refuse(in_.substr(at_, 3));
    }
    const bool fixed = body.find(',') == std::string::npos;
    if (body.front() == ',') body.insert(0, "0");
    at_ = end + 1;
    out_ += "{" + body + "}";
    if (looking_at("+")) {  // not possessive there: the interval itself is repeated
      out_.insert(atom_, "(?:");
      out_ += ")+";
      ++at_;
    } else if (looking_at("?")) {
      if (fixed) refuse("}?");
      copy(1);
    }
  }

  // \xHH, \x{H...}, \uHHHH; true when it was one.
  bool code_point_escape() {
    if (looking_at("\\x{")) {
      const size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) refuse("\\x{");
      copy(end + 1 - at_);
      return true;
    }
    if (!looking_at("\\x") && !looking_at("\\u")) return false;
    const size_t digits = in_[at_ + 1] == 'x' ? 2 : 4;
    const std::string_view hex = in_.substr(at_ + 2, digits);
    if (hex.size() != digits || hex.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      refuse(in_.substr(at_, 2 + digits));
    }
    out_ += "\\x{" + std::string(hex) + "}";
    at_ += 2 + digits;
    return true;
  }

  bool property_escape() {
    if (!looking_at("\\p{") && !looking_at("\\P{")) return false;
    const size_t end = in_.find('}', at_);
    if (end == std::string_view::npos) refuse(in_.substr(at_, 3));
    copy(end + 1 - at_);
    return true;
  }

  void escape() {
    if (at_ + 1 >= in_.size()) refuse("\\");
    if (code_point_escape() || property_escape()) return;
    const char c = in_[at_ + 1];
    const auto emit = [&](const std::string& text) {
      out_ += text;
      at_ += 2;
    };
    const auto set = [&](std::string_view members) { emit("[" + std::string(members) + "]"); };
    const auto not_set = [&](std::string_view members) { emit("[^" + std::string(members) + "]"); };
    const std::string word = "[" + std::string(kWord) + "]";
    switch (c) {
      case 's':
        return set(kSpace);
      case 'S':
        return not_set(kSpace);
      case 'w':
        return set(kWord);
      case 'W':
        return not_set(kWord);
      case 'h':
        return set(kHex);
      case 'H':
        return not_set(kHex);
      case 'v':
        return emit("\\x0B");
      case 'b':
        return emit("(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))");
      case 'B':
        return emit("(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))");
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'A':
      case 'z':
      case 'Z':
      case 'R':
        return copy(2);
      default:
        if (std::isalnum(static_cast<unsigned char>(c))) refuse(in_.substr(at_, 2));
        copy(2);
    }
  }

  void bracket() {
    copy(1);
    if (looking_at("^")) copy(1);
    if (looking_at("]")) refuse("[]");
    while (!looking_at("]")) {
      if (at_ >= in_.size()) refuse("[");
      if (looking_at("&&")) refuse("&&");
      if (in_[at_] == '[') {
        posix_class();
      } else if (in_[at_] == '\\') {
        escape_in_bracket();
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  void posix_class() {
    static constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
        {"[:alpha:]", "\\p{Alphabetic}"},
        {"[:digit:]", "\\p{Nd}"},
        {"[:alnum:]", "\\p{Alphabetic}\\p{Nd}"},
        {"[:upper:]", "\\p{Uppercase}"},
        {"[:lower:]", "\\p{Lowercase}"},
        {"[:space:]", kSpace},
        {"[:xdigit:]", kHex},
        {"[:word:]", kWord}};
    for (const auto& [name, members] : kClasses) {
      if (!looking_at(name)) continue;
      out_ += members;
      at_ += name.size();
      return;
    }
    refuse(in_.substr(at_, in_.substr(at_).starts_with("[:") ? in_.find(']', at_) - at_ + 1 : 1));
  }

  void escape_in_bracket() {
    if (at_ + 1 >= in_.size()) refuse("\\");
    if (code_point_escape() || property_escape()) return;
    const char c = in_[at_ + 1];
    const auto emit = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
    };
    switch (c) {
      case 's':
        return emit(kSpace);
      case 'S':
        return emit(kNotSpace);
      case 'w':
        return emit(kWord);
      case 'h':
        return emit(kHex);
      case 'v':
        return emit("\\x0B");
      case 'd':
      case 'D':
      case 'n':
      case 'r':
      case 't':
      case 'f':
      case 'a':
      case 'e':
      case 'b':
        return copy(2);
      default:
        if (std::isalnum(static_cast<unsigned char>(c))) refuse(in_.substr(at_, 2));
        copy(2);
    }
  }

  std::string_view in_;
  const std::string& place_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where in out_ the last atom starts
  std::vector<size_t> groups_;  // where the open groups start
};

}  // namespace

std::string translate_regex(std::string_view pattern, const std::string& place) {
  return Translator(pattern, place).run();
}

}  // namespace pacer::text
