// The objects that templates make: namespaces, ranges, iterators, dict views, functions.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

// namespace(...): the only thing that a template can change.
class Namespace final : public Object {
 public:
  std::string type_name() const override { return "jinja2.utils.Namespace"; }
  std::string repr(Context& context) const override;
  std::optional<Value> attribute(Context& context, const std::string& name) override;
  void set(const std::string& name, Value value);

  std::vector<std::pair<std::string, Value>> values;
};

// The result of map, select, items, ...: can be walked once, has no length and no index.
class Iterator final : public Object {
 public:
  explicit Iterator(std::vector<Value> values, std::string type = "generator")
      : values_(std::move(values)), type_(std::move(type)) {}
  std::string type_name() const override { return type_; }
  std::optional<std::vector<Value>> iterate() override { return std::exchange(values_, {}); }
  bool iterable() const override { return true; }
  std::optional<Value> next();  // the first element that is left

 private:
  std::vector<Value> values_;
  std::string type_;
};

// dict.keys(), dict.values(), dict.items(): can be walked again and have a length, but no index.
class View final : public Object {
 public:
  View(std::string type, std::vector<Value> values) : type_(std::move(type)), values_(std::move(values)) {}
  std::string type_name() const override { return type_; }
  std::string repr(Context& context) const override;
  std::optional<std::vector<Value>> iterate() override { return values_; }
  bool iterable() const override { return true; }
  std::optional<int64_t> length() const override { return static_cast<int64_t>(values_.size()); }

 private:
  std::string type_;
  std::vector<Value> values_;
};

class Range final : public Object {
 public:
  Range(int64_t start, int64_t stop, int64_t step);  // throws Failure above 100,000 elements, as the sandbox does
  std::string type_name() const override { return "range"; }
  std::string repr(Context& context) const override;
  std::optional<std::vector<Value>> iterate() override;
  bool iterable() const override { return true; }
  std::optional<int64_t> length() const override { return length_; }
  bool indexable() const override { return true; }
  bool equals(const Object& other) const override;  // the same numbers

 private:
  int64_t start_, stop_, step_, length_;
};

// range, raise_exception, "text".upper, loop.cycle: something that can be called.
class Function final : public Object {
 public:
  using Body = std::function<Value(Context&, Arguments)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}
  std::string type_name() const override { return "function"; }
  std::string repr(Context&) const override { return "<function " + name_ + ">"; }
  bool callable() const override { return true; }
  Value call(Context& context, Arguments arguments) override { return body_(context, std::move(arguments)); }

 private:
  std::string name_;
  Body body_;
};

// An object whose attributes are functions over shared state: cycler.
class Record final : public Object {
 public:
  using Attributes = std::function<std::optional<Value>(Context&, const std::string&)>;
  Record(std::string type, Attributes attributes) : type_(std::move(type)), attributes_(std::move(attributes)) {}
  std::string type_name() const override { return type_; }
  std::optional<Value> attribute(Context& context, const std::string& name) override {
    return attributes_(context, name);
  }

 private:
  std::string type_;
  Attributes attributes_;
};

Value make_iterator(std::vector<Value> values);
Value make_function(std::string name, Function::Body body);

}  // namespace pacer::text::jinja
