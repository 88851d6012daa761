// Escapes in string literals of templates: those of Python.
#pragma once

#include <string>
#include <string_view>

namespace pacer::text::jinja {

// Unknown escapes stay as they are. Throws Failure{value} for cut-off and impossible ones.
std::string unescape(std::string_view literal);

}  // namespace pacer::text::jinja
