// Template source to tokens: text, tags, and what is inside of tags. White space control happens here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pacer/text/jinja/context.h"

namespace pacer::text::jinja {

enum class TokenType {
  data,            // text between tags
  variable_begin,  // {{
  variable_end,
  block_begin,  // {%
  block_end,
  name,
  string,  // text: the value, escapes resolved
  integer,
  real,
  symbol,  // text: one of + - ** == ( ...
  end,
};

struct Token {
  TokenType type = TokenType::end;
  std::string text;
  Place place;
};

// place: what errors name. Newlines become \n, one newline at the end of the source is dropped, {# comments #} vanish.
// trim_blocks: a newline after a block tag goes. lstrip_blocks: blanks before a block tag at the start of a line go.
// Throws Error{format} with line and column.
std::vector<Token> tokenize(std::string_view source, const std::string& place);

// Error{format} "place:line:column: message".
[[noreturn]] void syntax_error(const std::string& place, const Place& at, const std::string& message);

}  // namespace pacer::text::jinja
