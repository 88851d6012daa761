#include "pacer/text/jinja/value.h"

#include <algorithm>
#include <limits>

#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/failure.h"

namespace pacer::text::jinja {
namespace {

constexpr int kMaxNesting = 200;

void check_nesting(int depth) {
  if (depth > kMaxNesting) {
    throw Failure(FailureType::limit, "values nested deeper than " + std::to_string(kMaxNesting));
  }
}

}  // namespace

Value::Value(std::string text, bool safe) : kind_(Kind::string) {
  auto heap = std::make_shared<Text>();
  heap->bytes = std::move(text);
  heap->safe = safe;
  heap_ = std::move(heap);
}

Value::Value(std::shared_ptr<Object> object) : kind_(Kind::object), heap_(std::move(object)) {}

Value Value::sequence(Kind kind, std::vector<Value> values) {
  auto heap = std::make_shared<Items>();
  for (const Value& value : values) heap->depth = std::max(heap->depth, value.depth() + 1);
  check_nesting(heap->depth);
  heap->values = std::move(values);
  Value out;
  out.kind_ = kind;
  out.heap_ = std::move(heap);
  return out;
}

Value Value::dict(std::vector<std::pair<Value, Value>> entries) {
  auto heap = std::make_shared<Entries>();
  for (const auto& [key, value] : entries) heap->depth = std::max({heap->depth, value.depth() + 1, key.depth() + 1});
  check_nesting(heap->depth);
  heap->values = std::move(entries);
  Value out;
  out.kind_ = Kind::dict;
  out.heap_ = std::move(heap);
  return out;
}

Value Value::undefined(std::string message, bool forbidden) {
  auto heap = std::make_shared<Missing>();
  heap->message = std::move(message);
  heap->forbidden = forbidden;
  Value out;
  out.kind_ = Kind::undefined;
  out.heap_ = std::move(heap);
  return out;
}

Value Value::from_json(const OrderedJson& json) {
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value();
    case OrderedJson::value_t::boolean:
      return json.get<bool>();
    case OrderedJson::value_t::number_integer:
      return json.get<int64_t>();
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw Failure(FailureType::overflow, "the integer " + json.dump() + " does not fit into 64 bits");
      }
      return json.get<int64_t>();
    case OrderedJson::value_t::number_float:
      return json.get<double>();
    case OrderedJson::value_t::string:
      return json.get_ref<const std::string&>();
    case OrderedJson::value_t::array: {
      std::vector<Value> values;
      values.reserve(json.size());
      for (const OrderedJson& item : json) values.push_back(from_json(item));
      return list(std::move(values));
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> entries;
      entries.reserve(json.size());
      for (const auto& [key, item] : json.items()) entries.emplace_back(Value(key), from_json(item));
      return dict(std::move(entries));
    }
    default:
      value_error("binary JSON has no place in a template");
  }
}

Object& Value::object() const { return static_cast<Object&>(*heap_); }

int Value::depth() const {
  switch (kind_) {
    case Kind::list:
    case Kind::tuple:
      return static_cast<const Items&>(*heap_).depth;
    case Kind::dict:
      return static_cast<const Entries&>(*heap_).depth;
    default:
      return 0;
  }
}

const Value* Entries::find(std::string_view key) const {
  for (const auto& [name, value] : values) {
    if (name.is_string() && name.text() == key) return &value;
  }
  return nullptr;
}

const Value* Entries::find(const Value& key) const {
  if (key.is_string()) return find(std::string_view(key.text()));
  for (const auto& [name, value] : values) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

std::string Object::repr(Context&) const { return "<" + type_name() + " object>"; }

std::optional<Value> Object::attribute(Context&, const std::string&) { return std::nullopt; }

Value Object::call(Context&, Arguments) { type_error("'" + type_name() + "' object is not callable"); }

void fail_undefined(const Value& value) {
  const Missing& missing = value.missing();
  throw Failure(missing.forbidden ? FailureType::security : FailureType::undefined, missing.message);
}

void require_defined(const Value& value) {
  if (value.is_undefined()) fail_undefined(value);
}

std::string type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "Undefined";
    case Kind::none:
      return "NoneType";
    case Kind::boolean:
      return "bool";
    case Kind::integer:
      return "int";
    case Kind::real:
      return "float";
    case Kind::string:
      return value.is_safe() ? "Markup" : "str";
    case Kind::list:
      return "list";
    case Kind::tuple:
      return "tuple";
    case Kind::dict:
      return "dict";
    case Kind::object:
      return value.object().type_name();
  }
  return "object";
}

}  // namespace pacer::text::jinja
