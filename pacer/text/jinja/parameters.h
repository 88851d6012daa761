// Binds the arguments of a call to the parameter names of a built-in function.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

class Parameters {
 public:
  // The first `required` parameters must be given. Throws Failure{type} for what does not fit.
  Parameters(const std::string& function, Arguments arguments, std::initializer_list<const char*> names,
             size_t required = 0);

  bool has(size_t index) const { return given_[index]; }
  Value get(size_t index, Value fallback = Value()) const { return given_[index] ? values_[index] : fallback; }
  // Throws Failure{type} unless an integer (or none, which gives the fallback).
  int64_t integer(size_t index, int64_t fallback) const;
  // Throws Failure{type} unless a string (or none, which gives the fallback).
  std::string text(size_t index, std::string fallback) const;

 private:
  std::string function_;
  std::vector<const char*> names_;
  std::vector<Value> values_;
  std::vector<bool> given_;
};

}  // namespace pacer::text::jinja
