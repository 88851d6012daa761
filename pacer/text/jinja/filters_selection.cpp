// map, select and their kin: filters that apply other filters and tests to every element.
#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/filters.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/objects.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/predicates.h"
#include "pacer/text/jinja/repr.h"

namespace pacer::text::jinja {
namespace {

std::vector<Value> walk(Context& context, const Value& input) {
  if (!truth(input)) return {};  // none and friends give nothing here
  std::vector<Value> values = iterate(input);
  context.step(static_cast<int64_t>(values.size()));
  return values;
}

std::string name_of(Context& context, const Value& value, const char* what) {
  if (!value.is_string()) type_error(std::string(what) + " must be named by a string, not " + repr(context, value));
  return value.text();
}

Value mapped(Context& context, const Value& input, Arguments arguments) {
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const Parameters parameters("map", std::move(arguments), {"attribute", "default"});
    if (!parameters.has(0)) type_error("map requires a filter argument");
    for (const Value& value : walk(context, input)) {
      out.push_back(item_path(context, value, parameters.get(0), parameters.get(1)));
    }
    return make_iterator(std::move(out));
  }
  const std::string name = name_of(context, arguments.positional.front(), "a filter");
  const Filter filter = find_filter(name);
  if (filter == nullptr) type_error("No filter named '" + name + "'.");
  arguments.positional.erase(arguments.positional.begin());
  const Context::Level level(context);  // map can be nested in map
  for (const Value& value : walk(context, input)) out.push_back(filter(context, value, arguments));
  return make_iterator(std::move(out));
}

template <bool Keep, bool ByAttribute>
Value selected(Context& context, const Value& input, Arguments arguments) {
  auto& positional = arguments.positional;
  Value path;
  if (ByAttribute) {
    if (positional.empty()) type_error("Missing parameter for attribute name");
    path = positional.front();
    positional.erase(positional.begin());
  }
  Predicate predicate = nullptr;
  if (!positional.empty()) {
    const std::string name = name_of(context, positional.front(), "a test");
    predicate = find_predicate(name);
    if (predicate == nullptr) type_error("No test named '" + name + "'.");
    positional.erase(positional.begin());
  }
  std::vector<Value> out;
  for (const Value& value : walk(context, input)) {
    const Value subject = ByAttribute ? item_path(context, value, path) : value;
    if ((predicate != nullptr ? predicate(context, subject, arguments) : truth(subject)) == Keep) {
      out.push_back(value);
    }
  }
  return make_iterator(std::move(out));
}

constexpr NamedFilter kFilters[] = {
    {"map", mapped},
    {"reject", selected<false, false>},
    {"rejectattr", selected<false, true>},
    {"select", selected<true, false>},
    {"selectattr", selected<true, true>},
};

}  // namespace

Filter find_selection_filter(std::string_view name) { return find_in(kFilters, name); }

}  // namespace pacer::text::jinja
