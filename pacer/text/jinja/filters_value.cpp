// Filters that convert or inspect one value.
#include <cctype>
#include <charconv>
#include <cmath>

#include "pacer/text/jinja/arithmetic.h"
#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/filters.h"
#include "pacer/text/jinja/json_text.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/python_format.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/text_tools.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

// Python allows one underscore between two digits.
std::optional<std::string> without_underscores(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const bool between = i > 0 && i + 1 < text.size() && std::isalnum(static_cast<unsigned char>(text[i - 1])) &&
                         std::isalnum(static_cast<unsigned char>(text[i + 1]));
    if (!between) return std::nullopt;
  }
  return out;
}

std::optional<int64_t> parse_integer(const std::string& source, int64_t base) {
  auto plain = without_underscores(strip(source, nullptr, Side::both));
  if (!plain || plain->empty()) return std::nullopt;
  std::string text = *plain;
  const bool negative_sign = text[0] == '-';
  if (text[0] == '-' || text[0] == '+') text.erase(0, 1);
  if (base < 0 || base == 1 || base > 36) value_error("int() base must be >= 2 and <= 36, or 0");
  const std::string head = lower(text.substr(0, 2));
  const int64_t named = head == "0x" ? 16 : head == "0o" ? 8 : head == "0b" ? 2 : 0;
  if (named != 0 && (base == named || base == 0)) {
    text.erase(0, 2);
    base = named;
  } else if (base == 0) {
    base = 10;
  }
  if (text.empty() || text[0] == '-' || text[0] == '+') return std::nullopt;
  if (negative_sign) text.insert(text.begin(), '-');
  int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value, static_cast<int>(base));
  if (result.ec == std::errc::result_out_of_range && result.ptr == text.data() + text.size()) {
    throw Failure(FailureType::overflow, "the integer " + source + " does not fit into 64 bits");
  }
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_real(const std::string& source) {
  const auto plain = without_underscores(lower(strip(source, nullptr, Side::both)));
  if (!plain || plain->empty()) return std::nullopt;
  const char* begin = plain->data();
  const char* end = begin + plain->size();
  if (*begin == '+') ++begin;
  if (begin == end || *begin == '+' || (*begin == '-' && plain->data() != begin)) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(plain->c_str(), nullptr);  // inf or 0, as Python
  return value;
}

std::optional<double> to_real(const Value& value) {
  require_defined(value);
  if (value.is_number()) return value.real();
  return value.is_string() ? parse_real(value.text()) : std::nullopt;
}

std::optional<Value> truncated(double number) {
  if (!std::isfinite(number)) return std::nullopt;
  if (std::fabs(number) >= 9.2e18) throw Failure(FailureType::overflow, "integer result does not fit into 64 bits");
  return Value(static_cast<int64_t>(number));
}

Value as_integer(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("int", std::move(arguments), {"default", "base"});
  const Value fallback = parameters.get(0, 0);
  require_defined(input);
  if (input.is_integral()) return input.integer();
  if (input.is_string()) {
    if (const auto whole = parse_integer(input.text(), parameters.integer(1, 10))) return *whole;
  }
  const auto number = to_real(input);
  if (!number) return fallback;
  return truncated(*number).value_or(fallback);
}

Value as_real(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("float", std::move(arguments), {"default"});
  const auto number = to_real(input);
  return number ? Value(*number) : parameters.get(0, 0.0);
}

Value absolute_value(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("abs", std::move(arguments), {});
  return absolute(input);
}

// Python rounds the decimal value that the binary number really has, ties to even.
double round_common(double value, int64_t precision) {
  if (!std::isfinite(value) || precision > 308) return value;
  if (precision >= 0) return std::strtod(fixed(value, static_cast<int>(precision)).c_str(), nullptr);
  const double scale = std::pow(10.0, static_cast<double>(-precision));
  return std::nearbyint(value / scale) * scale;
}

Value rounded(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("round", std::move(arguments), {"precision", "method"});
  const int64_t precision = parameters.integer(0, 0);
  const std::string method = parameters.text(1, "common");
  require_defined(input);
  if (!input.is_number()) type_error("type " + type_name(input) + " doesn't define __round__ method");
  if (method == "common") {
    if (input.is(Kind::real)) return round_common(input.real(), precision);
    if (precision >= 0) return input.integer();
    return static_cast<int64_t>(round_common(static_cast<double>(input.integer()), precision));
  }
  if (method != "ceil" && method != "floor") value_error("method must be common, ceil or floor");
  const Value scale = binary(context, BinaryOperator::power, Value(10), Value(precision));
  const double scaled = input.real() * scale.real();
  return (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale.real();
}

Value defaulted(Context&, const Value& input, Arguments arguments) {
  const Parameters parameters("default", std::move(arguments), {"default_value", "boolean"});
  if (input.is_undefined() || (truth(parameters.get(1, false)) && !truth(input))) return parameters.get(0, "");
  return input;
}

Value attribute_named(Context& context, const Value& input, Arguments arguments) {
  const Parameters parameters("attr", std::move(arguments), {"name"}, 1);
  return attribute_only(context, input, parameters.text(0, ""));
}

constexpr NamedFilter kFilters[] = {
    {"abs", absolute_value}, {"attr", attribute_named}, {"d", defaulted},   {"default", defaulted},
    {"float", as_real},      {"int", as_integer},       {"round", rounded}, {"tojson", filter_tojson},
};

}  // namespace

Filter find_value_filter(std::string_view name) { return find_in(kFilters, name); }

Filter find_filter(std::string_view name) {
  for (const auto find : {find_text_filter, find_sequence_filter, find_selection_filter, find_value_filter}) {
    if (const Filter filter = find(name)) return filter;
  }
  return nullptr;
}

}  // namespace pacer::text::jinja
