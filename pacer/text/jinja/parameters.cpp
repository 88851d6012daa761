#include "pacer/text/jinja/parameters.h"

#include <algorithm>

#include "pacer/text/jinja/failure.h"

namespace pacer::text::jinja {

Parameters::Parameters(const std::string& function, Arguments arguments, std::initializer_list<const char*> names,
                       size_t required)
    : function_(function), names_(names), values_(names.size()), given_(names.size(), false) {
  if (arguments.positional.size() > names_.size()) {
    type_error(function_ + "() takes at most " + std::to_string(names_.size()) + " argument(s), " +
               std::to_string(arguments.positional.size()) + " given");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    values_[i] = std::move(arguments.positional[i]);
    given_[i] = true;
  }
  for (auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) type_error(function_ + "() got an unexpected keyword argument '" + name + "'");
    const auto index = static_cast<size_t>(found - names_.begin());
    if (given_[index]) type_error(function_ + "() got multiple values for argument '" + name + "'");
    values_[index] = std::move(value);
    given_[index] = true;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!given_[i]) type_error(function_ + "() misses its argument '" + names_[i] + "'");
  }
}

int64_t Parameters::integer(size_t index, int64_t fallback) const {
  if (!given_[index] || values_[index].is_none()) return fallback;
  require_defined(values_[index]);
  if (!values_[index].is_integral()) {
    type_error(function_ + "(): '" + names_[index] + "' must be an integer, not " + type_name(values_[index]));
  }
  return values_[index].integer();
}

std::string Parameters::text(size_t index, std::string fallback) const {
  if (!given_[index] || values_[index].is_none()) return fallback;
  require_defined(values_[index]);
  if (!values_[index].is_string()) {
    type_error(function_ + "(): '" + names_[index] + "' must be a string, not " + type_name(values_[index]));
  }
  return values_[index].text();
}

}  // namespace pacer::text::jinja
