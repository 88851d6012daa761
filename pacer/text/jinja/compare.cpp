#include "pacer/text/jinja/compare.h"

#include <cmath>

#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

// Exact comparison of an integer with a float: a conversion would round above 2^53.
std::optional<int> order_mixed(int64_t a, double b) {
  if (std::isnan(b)) return std::nullopt;
  if (b >= 9223372036854775808.0) return -1;
  if (b < -9223372036854775808.0) return 1;
  const double whole = std::floor(b);
  const auto floor = static_cast<int64_t>(whole);
  if (a != floor) return a < floor ? -1 : 1;
  return b > whole ? -1 : 0;
}

std::optional<int> order_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) return (a.integer() > b.integer()) - (a.integer() < b.integer());
  if (a.is_integral()) return order_mixed(a.integer(), b.real());
  if (b.is_integral()) {
    const auto reversed = order_mixed(b.integer(), a.real());
    return reversed ? std::optional<int>(-*reversed) : std::nullopt;
  }
  if (std::isnan(a.real()) || std::isnan(b.real())) return std::nullopt;
  return (a.real() > b.real()) - (a.real() < b.real());
}

bool equal_entries(const Entries& a, const Entries& b) {
  if (a.values.size() != b.values.size()) return false;
  for (const auto& [key, value] : a.values) {
    const Value* other = b.find(key);
    if (other == nullptr || !equal(value, *other)) return false;
  }
  return true;
}

}  // namespace

bool truth(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
    case Kind::integer:
      return value.integer() != 0;
    case Kind::real:
      return value.real() != 0;
    case Kind::string:
      return !value.text().empty();
    case Kind::list:
    case Kind::tuple:
      return !value.items().empty();
    case Kind::dict:
      return !value.entries().values.empty();
    case Kind::object: {
      const auto size = value.object().length();
      return !size || *size != 0;
    }
  }
  return false;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    const auto result = order_numbers(a, b);
    return result && *result == 0;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::undefined:
    case Kind::none:
      return true;
    case Kind::string:
      return a.text() == b.text();
    case Kind::list:
    case Kind::tuple: {
      const auto &x = a.items(), &y = b.items();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        if (!equal(x[i], y[i])) return false;
      }
      return true;
    }
    case Kind::dict:
      return a.identity() == b.identity() || equal_entries(a.entries(), b.entries());
    case Kind::object:
      return a.object().equals(b.object());
    default:
      return false;  // numbers were compared above
  }
}

bool identical(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::none:
      return true;
    case Kind::boolean:
    case Kind::integer:
      return a.integer() == b.integer();
    case Kind::real:
      return a.real() == b.real();
    case Kind::string:  // equal short strings are one object in Python more often than not
      return a.text() == b.text();
    default:
      return a.identity() == b.identity();
  }
}

std::optional<int> order(const Value& a, const Value& b, const char* symbol) {
  if (a.is_number() && b.is_number()) return order_numbers(a, b);
  require_defined(a);
  require_defined(b);
  if (a.is_string() && b.is_string()) {
    const int result = a.text().compare(b.text());  // the order of UTF-8 bytes is that of code points
    return (result > 0) - (result < 0);
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!equal(x[i], y[i])) return order(x[i], y[i], symbol);
    }
    return (x.size() > y.size()) - (x.size() < y.size());
  }
  type_error("'" + std::string(symbol) + "' not supported between instances of '" + type_name(a) + "' and '" +
             type_name(b) + "'");
}

bool contains(const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::string:
      if (item.is_undefined()) fail_undefined(item);
      if (!item.is_string()) {
        type_error("'in <string>' requires string as left operand, not " + type_name(item));
      }
      return container.text().find(item.text()) != std::string::npos;
    case Kind::dict:
      require_hashable(item);
      return container.entries().find(item) != nullptr;
    case Kind::list:
    case Kind::tuple:
      for (const Value& value : container.items()) {
        if (equal(value, item)) return true;
      }
      return false;
    default:
      if (!is_iterable(container)) type_error("argument of type '" + type_name(container) + "' is not iterable");
      for (const Value& value : iterate(container)) {
        if (equal(value, item)) return true;
      }
      return false;
  }
}

void require_hashable(const Value& key) {
  if (key.is(Kind::list) || key.is(Kind::dict)) type_error("unhashable type: '" + type_name(key) + "'");
  if (key.is(Kind::tuple)) {
    for (const Value& item : key.items()) require_hashable(item);
  }
}

bool is_iterable(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return !value.missing().forbidden;
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return true;
    case Kind::object:
      return value.object().iterable();
    default:
      return false;
  }
}

std::vector<Value> iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      if (value.missing().forbidden) fail_undefined(value);
      return {};
    case Kind::string: {
      std::vector<Value> out;
      const std::string& text = value.text();
      for (size_t at = 0; at < text.size();) {
        const size_t start = at;
        decode_at(text, at);
        out.emplace_back(text.substr(start, at - start));
      }
      return out;
    }
    case Kind::list:
    case Kind::tuple:
      return value.items();
    case Kind::dict: {
      std::vector<Value> out;
      for (const auto& entry : value.entries().values) out.push_back(entry.first);
      return out;
    }
    case Kind::object:
      if (auto items = value.object().iterate()) return *std::move(items);
      break;
    default:
      break;
  }
  type_error("'" + type_name(value) + "' object is not iterable");
}

int64_t length(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      if (value.missing().forbidden) fail_undefined(value);
      return 0;
    case Kind::string:
      return code_points(value.text());
    case Kind::list:
    case Kind::tuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::dict:
      return static_cast<int64_t>(value.entries().values.size());
    case Kind::object:
      if (const auto size = value.object().length()) return *size;
      break;
    default:
      break;
  }
  type_error("object of type '" + type_name(value) + "' has no len()");
}

}  // namespace pacer::text::jinja
