// Character classes as the reference tokenizers define them.
#pragma once

namespace pacer::text {

bool is_white_space(char32_t c);     // property White_Space
bool is_number(char32_t c);          // categories Nd, Nl, No
bool is_punctuation(char32_t c);     // ASCII punctuation (symbols such as $ and + included) and categories P*
bool is_word_character(char32_t c);  // Alphabetic, M*, Nd, Pc, Join_Control: \w of Unicode TR18
bool is_mark(char32_t c);            // categories M*

}  // namespace pacer::text
