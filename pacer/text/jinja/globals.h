// The functions that every template can call: range, namespace, raise_exception, strftime_now, ...
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

const std::vector<std::pair<std::string, Value>>& globals();

}  // namespace pacer::text::jinja
