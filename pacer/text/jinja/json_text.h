// json.dumps, and the tojson filter that Hugging Face gives to chat templates: no HTML escaping.
#pragma once

#include <optional>
#include <string>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level of it; absent: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

// Throws Failure{type} for what JSON cannot hold, e.g. undefined values.
std::string json_text(Context& context, const Value& value, const JsonStyle& style);

// tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)
Value filter_tojson(Context& context, const Value& input, Arguments arguments);

}  // namespace pacer::text::jinja
