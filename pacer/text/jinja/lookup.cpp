#include "pacer/text/jinja/lookup.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/objects.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

constexpr std::array<std::string_view, 5> kDictChanges{"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> kListChanges{"append", "clear", "pop",    "reverse",
                                                       "insert", "sort",  "extend", "remove"};

bool hidden(const Value& object, const std::string& name) {
  if (name.starts_with("__")) return true;
  const auto in = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  return (object.is(Kind::dict) && in(kDictChanges)) || (object.is(Kind::list) && in(kListChanges));
}

// A method of the object, an attribute of it, or what the sandbox shows in place of one; empty when there is none.
std::optional<Value> own_attribute(Context& context, const Value& object, const std::string& name) {
  if (hidden(object, name)) {
    // Only names that the object really has are refused; every object has __class__ and its kin.
    return Value::undefined("access to attribute '" + name + "' of '" + type_name(object) + "' object is unsafe.",
                            true);
  }
  if (object.is(Kind::object)) return object.object().attribute(context, name);
  Method method = nullptr;
  switch (object.kind()) {
    case Kind::string:
      method = find_string_method(name);
      break;
    case Kind::dict:
    case Kind::list:
    case Kind::tuple:
      method = find_container_method(object.kind(), name);
      break;
    case Kind::integer:
    case Kind::boolean:
    case Kind::real:
      method = find_number_method(object.kind(), name);
      break;
    default:
      break;
  }
  if (method == nullptr) return std::nullopt;
  return make_function(name, [method, object](Context& inner, Arguments arguments) {
    return method(inner, object, std::move(arguments));
  });
}

const Value* dict_item(const Value& object, const Value& key) {
  if (key.is(Kind::list) || key.is(Kind::dict)) return nullptr;
  return object.entries().find(key);
}

std::optional<Value> own_item(const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::dict:
      if (const Value* found = dict_item(object, key)) return *found;
      return std::nullopt;
    case Kind::string: {
      if (!key.is_integral()) return std::nullopt;
      const int64_t size = code_points(object.text());
      const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
      if (index < 0 || index >= size) return std::nullopt;
      size_t at = byte_offset(object.text(), index);
      const size_t start = at;
      decode_at(object.text(), at);
      return Value(object.text().substr(start, at - start));
    }
    case Kind::list:
    case Kind::tuple: {
      if (!key.is_integral()) return std::nullopt;
      const auto size = static_cast<int64_t>(object.items().size());
      const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
      if (index < 0 || index >= size) return std::nullopt;
      return object.items()[static_cast<size_t>(index)];
    }
    case Kind::object: {
      if (!object.object().indexable() || !key.is_integral()) return std::nullopt;
      const std::vector<Value> values = *object.object().iterate();
      const auto size = static_cast<int64_t>(values.size());
      const int64_t index = key.integer() < 0 ? key.integer() + size : key.integer();
      if (index < 0 || index >= size) return std::nullopt;
      return values[static_cast<size_t>(index)];
    }
    default:
      return std::nullopt;
  }
}

std::string described(const Value& object) { return object.is_none() ? "None" : type_name(object) + " object"; }

Value no_attribute(const Value& object, const std::string& name) {
  return Value::undefined("'" + described(object) + "' has no attribute '" + name + "'");
}

}  // namespace

Value attribute(Context& context, const Value& object, const std::string& name) {
  require_defined(object);
  if (object.is(Kind::dict)) {
    // Message fields are looked up far more often than methods; a field wins only where dict has no such name.
    if (!hidden(object, name) && find_container_method(Kind::dict, name) == nullptr) {
      if (const Value* found = object.entries().find(std::string_view(name))) return *found;
      return no_attribute(object, name);
    }
  }
  if (auto own = own_attribute(context, object, name)) return *std::move(own);
  if (auto own = own_item(object, Value(name))) return *std::move(own);
  return no_attribute(object, name);
}

Value attribute_only(Context& context, const Value& object, const std::string& name) {
  require_defined(object);
  if (auto own = own_attribute(context, object, name)) return *std::move(own);
  return no_attribute(object, name);
}

Value item(Context& context, const Value& object, const Value& key) {
  require_defined(object);
  if (auto own = own_item(object, key)) return *std::move(own);
  if (key.is_string()) {
    if (auto own = own_attribute(context, object, key.text())) return *std::move(own);
    return no_attribute(object, key.text());
  }
  return Value::undefined(described(object) + " has no element " + repr(context, key));
}

Value slice(Context& context, const Value& object, const Value& start, const Value& stop, const Value& step) {
  require_defined(object);
  const bool text = object.is_string();
  const bool walkable = object.is(Kind::object) && object.object().indexable();
  if (object.is(Kind::dict)) type_error("unhashable type: 'slice'");
  if (!text && !object.is_sequence() && !walkable) {
    type_error("'" + type_name(object) + "' object is not subscriptable");
  }
  for (const Value* bound : {&start, &stop, &step}) {
    require_defined(*bound);
    if (!bound->is_none() && !bound->is_integral()) type_error("slice indices must be integers or None");
  }
  const std::vector<Value> walked = walkable ? *object.object().iterate() : std::vector<Value>();
  const std::vector<Value>& values = object.is_sequence() ? object.items() : walked;
  const int64_t size = text ? code_points(object.text()) : static_cast<int64_t>(values.size());
  const int64_t stride = step.is_none() ? 1 : step.integer();
  if (stride == 0) value_error("slice step cannot be zero");
  const auto clamp = [&](const Value& bound, int64_t fallback) {
    if (bound.is_none()) return fallback;
    int64_t index = bound.integer();
    if (index < 0) index = std::max<int64_t>(index + size, stride > 0 ? 0 : -1);
    return std::min(index, stride > 0 ? size : size - 1);
  };
  const int64_t first = clamp(start, stride > 0 ? 0 : size - 1);
  const int64_t last = clamp(stop, stride > 0 ? size : -1);
  if (text && stride == 1) {
    if (first >= last) return Value(std::string(), object.is_safe());
    const std::string_view all = object.text();
    const size_t from = byte_offset(all, first);
    const size_t count = byte_offset(all.substr(from), last - first);
    context.charge(count);
    return Value(std::string(all.substr(from, count)), object.is_safe());
  }
  const std::u32string wide = text ? to_code_points(object.text()) : std::u32string();
  std::u32string cut;
  std::vector<Value> out;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    context.step();
    if (text) {
      cut.push_back(wide[static_cast<size_t>(i)]);
    } else {
      out.push_back(values[static_cast<size_t>(i)]);
    }
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  context.charge(out.size() * sizeof(Value) + cut.size() * 4);
  if (text) return Value(to_utf8(cut), object.is_safe());
  return object.is(Kind::tuple) ? Value::tuple(std::move(out)) : Value::list(std::move(out));
}

Value call(Context& context, const Value& callee, Arguments arguments) {
  require_defined(callee);
  if (!callee.is(Kind::object)) type_error("'" + type_name(callee) + "' object is not callable");
  const Context::Level level(context);
  return callee.object().call(context, std::move(arguments));
}

Value item_path(Context& context, Value object, const Value& path, const Value& fallback) {
  if (path.is_none()) return object;
  const auto known = [&](Value value) { return value.is_undefined() && !fallback.is_none() ? fallback : value; };
  if (!path.is_string()) return known(item(context, object, path));
  const std::string& text = path.text();
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find('.', start), text.size());
    const std::string part = text.substr(start, end - start);
    const bool index = !part.empty() && part.size() < 10 &&
                       std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    object = known(item(context, object, index ? Value(int64_t{std::stoll(part)}) : Value(part)));
    start = end + 1;
  }
  return object;
}

}  // namespace pacer::text::jinja
