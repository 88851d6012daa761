#include "pacer/text/jinja/string_literal.h"

#include <algorithm>
#include <charconv>

#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

char32_t hex(std::string_view literal, size_t& at, size_t digits) {
  unsigned value = 0;
  const char* begin = literal.data() + at;
  const char* end = begin + std::min(digits, literal.size() - at);
  const auto result = std::from_chars(begin, end, value, 16);
  if (result.ptr != begin + digits) {
    value_error("truncated \\" + std::string(1, literal[at - 1]) + " escape in a string");
  }
  at += digits;
  return value;
}

char32_t octal(std::string_view literal, size_t& at) {
  char32_t value = 0;
  for (int i = 0; i < 3 && at < literal.size() && literal[at] >= '0' && literal[at] <= '7'; ++i) {
    value = value * 8 + static_cast<char32_t>(literal[at++] - '0');
  }
  return value;
}

}  // namespace

std::string unescape(std::string_view literal) {
  std::string out;
  out.reserve(literal.size());
  for (size_t at = 0; at < literal.size();) {
    if (literal[at] != '\\' || at + 1 >= literal.size()) {
      out += literal[at++];
      continue;
    }
    const char escape = literal[at + 1];
    at += 2;
    char32_t c = 0;
    switch (escape) {
      case '\n':
        continue;  // the line goes on
      case '\\':
      case '\'':
      case '"':
        c = static_cast<char32_t>(escape);
        break;
      case 'a':
        c = 7;
        break;
      case 'b':
        c = 8;
        break;
      case 'f':
        c = 12;
        break;
      case 'n':
        c = '\n';
        break;
      case 'r':
        c = '\r';
        break;
      case 't':
        c = '\t';
        break;
      case 'v':
        c = 11;
        break;
      case 'x':
        c = hex(literal, at, 2);
        break;
      case 'u':
        c = hex(literal, at, 4);
        break;
      case 'U':
        c = hex(literal, at, 8);
        break;
      case 'N':
        value_error("\\N{...} escapes are not supported; write the character itself");
      default:
        if (escape >= '0' && escape <= '7') {
          --at;
          c = octal(literal, at);
          break;
        }
        out += '\\';
        out += escape;
        continue;
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) value_error("a string escape that is not a character");
    append_utf8(out, c);
  }
  return out;
}

}  // namespace pacer::text::jinja
