// value | name(arguments): Jinja's built-in filters, with Hugging Face's tojson.
#pragma once

#include <string>
#include <string_view>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

using Filter = Value (*)(Context& context, const Value& input, Arguments arguments);

struct NamedFilter {
  std::string_view name;
  Filter filter;
};

// Null when there is none. "random" is left out on purpose: a template must give the same text every time. So are
// pprint, urlize and wordwrap, which no chat template needs.
Filter find_filter(std::string_view name);

// By subject, one file each.
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
Filter find_selection_filter(std::string_view name);
Filter find_value_filter(std::string_view name);

template <size_t N>
Filter find_in(const NamedFilter (&table)[N], std::string_view name) {
  for (const NamedFilter& entry : table) {
    if (entry.name == name) return entry.filter;
  }
  return nullptr;
}

}  // namespace pacer::text::jinja
