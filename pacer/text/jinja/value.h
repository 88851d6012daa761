// Values of the template language: Python's, as far as a template can see them.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/base/json.h"

namespace pacer::text::jinja {

class Context;
class Value;
class Object;

enum class Kind : uint8_t { undefined, none, boolean, integer, real, string, list, tuple, dict, object };

struct Heap {
  virtual ~Heap() = default;
};

struct Text final : Heap {
  std::string bytes;  // valid UTF-8
  bool safe = false;  // marked as HTML: joined to other text, that is escaped
};

struct Items;
struct Entries;

// An undefined value is silent until it is used; then `message` is the error.
struct Missing final : Heap {
  std::string message;
  bool forbidden = false;  // the sandbox hides the attribute
};

class Value {
 public:
  Value() = default;               // none
  template <std::same_as<bool> T>  // not by conversion: a pointer is no boolean
  Value(T value) : kind_(Kind::boolean) {
    number_.integer = value;
  }
  Value(int64_t value) : kind_(Kind::integer) { number_.integer = value; }
  Value(int value) : Value(static_cast<int64_t>(value)) {}
  Value(double value) : kind_(Kind::real) { number_.real = value; }
  Value(std::string text, bool safe = false);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<Object> object);

  // Throws Failure{limit} when nested too deep.
  static Value list(std::vector<Value> values) { return sequence(Kind::list, std::move(values)); }
  static Value tuple(std::vector<Value> values) { return sequence(Kind::tuple, std::move(values)); }
  static Value dict(std::vector<std::pair<Value, Value>> entries);  // keys must be unique
  static Value undefined(std::string message, bool forbidden = false);
  // Integers that do not fit into 64 bits are a Failure.
  static Value from_json(const OrderedJson& json);

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_string() const { return kind_ == Kind::string; }
  bool is_undefined() const { return kind_ == Kind::undefined; }
  bool is_none() const { return kind_ == Kind::none; }
  bool is_sequence() const { return kind_ == Kind::list || kind_ == Kind::tuple; }
  bool is_integral() const { return kind_ == Kind::integer || kind_ == Kind::boolean; }
  bool is_number() const { return is_integral() || kind_ == Kind::real; }

  // Only for values of the kind in question.
  bool boolean() const { return number_.integer != 0; }
  int64_t integer() const { return number_.integer; }  // booleans are 0 and 1
  double real() const { return kind_ == Kind::real ? number_.real : static_cast<double>(number_.integer); }
  const std::string& text() const { return static_cast<const Text&>(*heap_).bytes; }
  bool is_safe() const { return kind_ == Kind::string && static_cast<const Text&>(*heap_).safe; }
  const std::vector<Value>& items() const;
  const Entries& entries() const;
  const Missing& missing() const { return static_cast<const Missing&>(*heap_); }
  Object& object() const;
  template <typename T>
  T* object_as() const {
    return kind_ == Kind::object ? dynamic_cast<T*>(heap_.get()) : nullptr;
  }
  const Heap* identity() const { return heap_.get(); }
  int depth() const;

 private:
  static Value sequence(Kind kind, std::vector<Value> values);

  Kind kind_ = Kind::none;
  union {
    int64_t integer = 0;
    double real;
  } number_;
  std::shared_ptr<Heap> heap_;
};

struct Items final : Heap {
  std::vector<Value> values;
  int depth = 1;  // of nesting; bounded, so that no destructor or comparison recurses without end
};

struct Entries final : Heap {
  std::vector<std::pair<Value, Value>> values;  // in order of insertion, keys unique
  int depth = 1;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};

inline const std::vector<Value>& Value::items() const { return static_cast<const Items&>(*heap_).values; }
inline const Entries& Value::entries() const { return static_cast<const Entries&>(*heap_); }

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Everything that is neither data nor a literal: functions, macros, loops, namespaces, iterators.
class Object : public Heap {
 public:
  virtual std::string type_name() const = 0;  // as Python would name it
  virtual std::string repr(Context& context) const;
  virtual std::optional<Value> attribute(Context& context, const std::string& name);
  virtual bool callable() const { return false; }
  virtual Value call(Context& context, Arguments arguments);
  // What iterating gives; an iterator is empty afterwards. Empty when the object cannot be iterated.
  virtual std::optional<std::vector<Value>> iterate() { return std::nullopt; }
  virtual bool iterable() const { return false; }
  virtual std::optional<int64_t> length() const { return std::nullopt; }
  virtual bool indexable() const { return false; }
  virtual bool equals(const Object& other) const { return this == &other; }
};

// Fails for undefined values, with their message.
void require_defined(const Value& value);
[[noreturn]] void fail_undefined(const Value& value);

std::string type_name(const Value& value);  // "str", "NoneType"

}  // namespace pacer::text::jinja
