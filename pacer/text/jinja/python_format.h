// Python's two ways to format: "{:>5}".format(x) and "%5s" % x, and the format mini-language under both.
#pragma once

#include <string>
#include <string_view>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

// str.format. Attributes and items in field names follow the sandbox's rules.
Value format_braces(Context& context, const std::string& format, const Arguments& arguments);
// format % values; values: a tuple, a dict for %(name)s, or a single value.
Value format_percent(Context& context, const std::string& format, const Value& values);
// format(value, specification)
std::string format_value(Context& context, const Value& value, std::string_view specification);

std::string fixed(double value, int digits);  // correctly rounded, as round() needs it

}  // namespace pacer::text::jinja
