// Strings of templates are UTF-8; Python counts, cuts and classifies code points.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pacer::text::jinja {

// Position of the first byte that is not UTF-8, or npos.
size_t find_invalid_utf8(std::string_view text);

// The functions below expect valid UTF-8.
int64_t code_points(std::string_view text);
char32_t decode_at(std::string_view text, size_t& position);  // moves position behind the code point
void append_utf8(std::string& out, char32_t code_point);
size_t byte_offset(std::string_view text, int64_t index);  // of code point `index`; text.size() at or beyond the end
std::u32string to_code_points(std::string_view text);
std::string to_utf8(std::u32string_view text);

// As Python's str methods of the same names classify one character.
bool is_space(char32_t c);
bool is_word(char32_t c);       // \w: letters, digits, underscore, ...
bool is_printable(char32_t c);  // shown as is by repr()
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);  // decimal digits of any script
bool is_digit(char32_t c);    // and superscripts and the like
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
// str.isupper, str.islower: there is a letter with case, and all of them have this one.
bool has_case(std::string_view text, bool upper);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);   // first character upper case, the rest lower case
std::string title_words(std::string_view text);  // str.title: upper case after every character that has no case
std::string swap_case(std::string_view text);
std::string fold_case(std::string_view text);

}  // namespace pacer::text::jinja
