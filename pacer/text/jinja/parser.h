// Tokens to the tree of a template.
#pragma once

#include <string>

#include "pacer/text/jinja/syntax.h"

namespace pacer::text::jinja {

// place: what errors name. Throws Error{format} with line and column, as well for filters and tests that do not exist
// (those inside of a condition fail when they run, as in Jinja).
Template parse(const std::string& source, const std::string& place);

}  // namespace pacer::text::jinja
