#include "pacer/text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>

#include "pacer/base/error.h"

namespace pacer::text::jinja {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

// Upper case of characters that become several; utf8proc maps one to one.
struct Expansion {
  char32_t from;
  const char* upper;
  const char* title;
};
constexpr std::array<Expansion, 10> kExpansions{{{0xDF, "SS", "Ss"},
                                                 {0x149, "ʼN", "ʼN"},
                                                 {0x1F0, "J̌", "J̌"},
                                                 {0xFB00, "FF", "Ff"},
                                                 {0xFB01, "FI", "Fi"},
                                                 {0xFB02, "FL", "Fl"},
                                                 {0xFB03, "FFI", "Ffi"},
                                                 {0xFB04, "FFL", "Ffl"},
                                                 {0xFB05, "ST", "St"},
                                                 {0xFB06, "ST", "St"}}};

const Expansion* expansion(char32_t c) {
  for (const Expansion& entry : kExpansions) {
    if (entry.from == c) return &entry;
  }
  return nullptr;
}

void append_upper(std::string& out, char32_t c) {
  if (const Expansion* entry = expansion(c)) {
    out += entry->upper;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
  }
}

void append_title(std::string& out, char32_t c) {
  if (const Expansion* entry = expansion(c)) {
    out += entry->title;
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// A capital sigma at the end of a word becomes the final form.
bool is_final_sigma(const std::u32string& text, size_t at) {
  size_t before = at;
  while (before > 0 && category(text[before - 1]) == UTF8PROC_CATEGORY_MN) --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = at + 1;
  while (after < text.size() && category(text[after]) == UTF8PROC_CATEGORY_MN) ++after;
  return after == text.size() || !is_cased(text[after]);
}

void append_lower(std::string& out, const std::u32string& text, size_t at) {
  const char32_t c = text[at];
  if (c == 0x3A3) {
    append_utf8(out, is_final_sigma(text, at) ? 0x3C2 : 0x3C3);
  } else if (c == 0x130) {
    out += "i̇";
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

}  // namespace

size_t find_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (static_cast<unsigned char>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t got = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at),
                                                  static_cast<utf8proc_ssize_t>(text.size() - at), &code_point);
    if (got <= 0) return at;
    at += static_cast<size_t>(got);
  }
  return std::string_view::npos;
}

int64_t code_points(std::string_view text) {
  int64_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

char32_t decode_at(std::string_view text, size_t& position) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[position + i])); };
  const char32_t first = byte(0);
  size_t length = 1;
  char32_t c = first;
  if (first >= 0xF0 && position + 3 < text.size()) {
    length = 4;
    c = ((first & 7) << 18) | ((byte(1) & 63) << 12) | ((byte(2) & 63) << 6) | (byte(3) & 63);
  } else if (first >= 0xE0 && position + 2 < text.size()) {
    length = 3;
    c = ((first & 15) << 12) | ((byte(1) & 63) << 6) | (byte(2) & 63);
  } else if (first >= 0xC0 && position + 1 < text.size()) {
    length = 2;
    c = ((first & 31) << 6) | (byte(1) & 63);
  }
  position += length;
  return c;
}

void append_utf8(std::string& out, char32_t c) {
  if (c < 0x80) {
    out.push_back(static_cast<char>(c));
  } else if (c < 0x800) {
    out.push_back(static_cast<char>(0xC0 | (c >> 6)));
    out.push_back(static_cast<char>(0x80 | (c & 63)));
  } else if (c < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | (c >> 12)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 63)));
    out.push_back(static_cast<char>(0x80 | (c & 63)));
  } else {
    out.push_back(static_cast<char>(0xF0 | (c >> 18)));
    out.push_back(static_cast<char>(0x80 | ((c >> 12) & 63)));
    out.push_back(static_cast<char>(0x80 | ((c >> 6) & 63)));
    out.push_back(static_cast<char>(0x80 | (c & 63)));
  }
}

size_t byte_offset(std::string_view text, int64_t index) {
  size_t at = 0;
  while (index > 0 && at < text.size()) {
    ++at;
    while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
    --index;
  }
  return at;
}

std::u32string to_code_points(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out.push_back(decode_at(text, at));
  return out;
}

std::string to_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char32_t c : text) append_utf8(out, c);
  return out;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 9 && c <= 13) || (c >= 28 && c <= 32);
  if (c == 0x85) return true;
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL || kind == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t c) { return c == '_' || is_alpha(c) || is_numeric(c); }

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return true;
    default:
      return false;
  }
}

bool is_decimal(char32_t c) { return c < 0x80 ? (c >= '0' && c <= '9') : category(c) == UTF8PROC_CATEGORY_ND; }

bool is_digit(char32_t c) {
  return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079) ||
         (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}

bool is_numeric(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_upper(char32_t c) {
  return c < 0x80 ? (c >= 'A' && c <= 'Z')
                  : category(c) == UTF8PROC_CATEGORY_LU || (c >= 0x2160 && c <= 0x216F) || (c >= 0x24B6 && c <= 0x24CF);
}

bool is_lower(char32_t c) {
  return c < 0x80 ? (c >= 'a' && c <= 'z')
                  : category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA || (c >= 0x2170 && c <= 0x217F) ||
                        (c >= 0x24D0 && c <= 0x24E9);
}

bool is_title(char32_t c) { return c >= 0x80 && category(c) == UTF8PROC_CATEGORY_LT; }

bool has_case(std::string_view text, bool upper) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = decode_at(text, at);
    if (is_title(c) || (upper ? is_lower(c) : is_upper(c))) return false;
    any = any || (upper ? is_upper(c) : is_lower(c));
  }
  return any;
}

std::string upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) out.push_back(c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c);
    return out;
  }
  for (size_t at = 0; at < text.size();) append_upper(out, decode_at(text, at));
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (is_ascii(text)) {
    for (const char c : text) out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c);
    return out;
  }
  const std::u32string wide = to_code_points(text);
  for (size_t i = 0; i < wide.size(); ++i) append_lower(out, wide, i);
  return out;
}

std::string capitalize(std::string_view text) {
  const std::u32string wide = to_code_points(text);
  std::string out;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (i == 0) {
      append_title(out, wide[0]);
    } else {
      append_lower(out, wide, i);
    }
  }
  return out;
}

std::string title_words(std::string_view text) {
  const std::u32string wide = to_code_points(text);
  std::string out;
  bool inside_word = false;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (inside_word) {
      append_lower(out, wide, i);
    } else {
      append_title(out, wide[i]);
    }
    inside_word = is_cased(wide[i]);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  const std::u32string wide = to_code_points(text);
  std::string out;
  for (size_t i = 0; i < wide.size(); ++i) {
    if (is_upper(wide[i])) {
      append_lower(out, wide, i);
    } else {
      append_upper(out, wide[i]);
    }
  }
  return out;
}

std::string fold_case(std::string_view text) {
  utf8proc_uint8_t* folded = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &folded, UTF8PROC_CASEFOLD);
  if (size < 0) throw Error(ErrorKind::bug, std::string("case folding failed: ") + utf8proc_errmsg(size));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(folded, &std::free);
  return std::string(reinterpret_cast<const char*>(folded), static_cast<size_t>(size));
}

}  // namespace pacer::text::jinja
