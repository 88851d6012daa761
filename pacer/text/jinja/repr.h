// str() and repr() of Python.
#pragma once

#include <string>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

// What {{ value }} prints: "None", "True", "1.0", the text itself, "" for undefined values.
std::string to_text(Context& context, const Value& value);
// As to_text, without the copy when the value is a string.
void append_text(Context& context, std::string& out, const Value& value);
std::string repr(Context& context, const Value& value);

// The shortest decimal that reads back as the same number, in Python's layout: 1.0, 1e+20, 0.30000000000000004.
std::string float_repr(double value);
std::string string_repr(const std::string& text);

}  // namespace pacer::text::jinja
