// value is name(arguments): what Jinja calls tests.
#pragma once

#include <string_view>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

using Predicate = bool (*)(Context& context, const Value& value, Arguments arguments);

// Null when there is none.
Predicate find_predicate(std::string_view name);

}  // namespace pacer::text::jinja
