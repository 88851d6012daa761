// + - * / // % ** ~ and unary minus, as Python computes them; integers beyond 64 bits are a Failure.
#pragma once

#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

enum class BinaryOperator { add, subtract, multiply, divide, floor_divide, modulo, power };

Value binary(Context& context, BinaryOperator op, const Value& a, const Value& b);
Value negative(const Value& value);
Value positive(const Value& value);
Value absolute(const Value& value);
// The ~ operator: the texts one after the other. Unlike + it escapes nothing, marked as HTML or not.
Value concatenate(Context& context, const std::vector<Value>& parts);
// & < > " ' as HTML entities.
std::string escape_html(const std::string& text);

}  // namespace pacer::text::jinja
