#include "pacer/text/jinja/arithmetic.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/python_format.h"
#include "pacer/text/jinja/repr.h"

namespace pacer::text::jinja {
namespace {

const char* symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::add:
      return "+";
    case BinaryOperator::subtract:
      return "-";
    case BinaryOperator::multiply:
      return "*";
    case BinaryOperator::divide:
      return "/";
    case BinaryOperator::floor_divide:
      return "//";
    case BinaryOperator::modulo:
      return "%";
    case BinaryOperator::power:
      return "** or pow()";
  }
  return "?";
}

[[noreturn]] void too_large() { throw Failure(FailureType::overflow, "integer result does not fit into 64 bits"); }

[[noreturn]] void unsupported(BinaryOperator op, const Value& a, const Value& b) {
  type_error("unsupported operand type(s) for " + std::string(symbol(op)) + ": '" + type_name(a) + "' and '" +
             type_name(b) + "'");
}

[[noreturn]] void division_by_zero(const std::string& message) { throw Failure(FailureType::zero_division, message); }

int64_t floor_quotient(int64_t a, int64_t b) {
  if (b == -1) {
    if (a == std::numeric_limits<int64_t>::min()) too_large();
    return -a;
  }
  const int64_t quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

int64_t floor_remainder(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t remainder = a % b;
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_remainder(double a, double b) {
  const double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  return (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

double floor_quotient(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;  // whole, up to rounding
  if (remainder != 0 && (remainder < 0) != (b < 0)) quotient -= 1;
  return quotient == 0 ? std::copysign(0.0, a / b) : std::round(quotient);
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) division_by_zero("0.0 cannot be raised to a negative power");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) too_large();
  }
  return result;
}

Value integers(BinaryOperator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::add:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::subtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::multiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::divide:
      if (b == 0) division_by_zero("division by zero");
      return static_cast<double>(a) / static_cast<double>(b);
    case BinaryOperator::floor_divide:
      if (b == 0) division_by_zero("integer division or modulo by zero");
      return floor_quotient(a, b);
    case BinaryOperator::modulo:
      if (b == 0) division_by_zero("integer modulo by zero");
      return floor_remainder(a, b);
    case BinaryOperator::power:
      return integer_power(a, b);
  }
  if (overflow) too_large();
  return result;
}

Value reals(BinaryOperator op, double a, double b) {
  switch (op) {
    case BinaryOperator::add:
      return a + b;
    case BinaryOperator::subtract:
      return a - b;
    case BinaryOperator::multiply:
      return a * b;
    case BinaryOperator::divide:
      if (b == 0) division_by_zero("float division by zero");
      return a / b;
    case BinaryOperator::floor_divide:
      if (b == 0) division_by_zero("float floor division by zero");
      return floor_quotient(a, b);
    case BinaryOperator::modulo:
      if (b == 0) division_by_zero("float modulo");
      return floor_remainder(a, b);
    case BinaryOperator::power:
      if (a == 0 && b < 0) division_by_zero("0.0 cannot be raised to a negative power");
      if (a < 0 && b != std::floor(b)) value_error("complex numbers are not supported");
      if (std::isfinite(a) && std::isfinite(b) && std::isinf(std::pow(a, b))) {
        throw Failure(FailureType::overflow, "Numerical result out of range");
      }
      return std::pow(a, b);
  }
  return 0.0;
}

Value repeat(Context& context, const Value& value, int64_t count) {
  const size_t size = value.is_string() ? value.text().size() : value.items().size();
  const auto times = size == 0 ? size_t{0} : static_cast<size_t>(std::max<int64_t>(count, 0));
  if (size != 0 && times > context.limits().bytes / size) context.charge(context.limits().bytes + 1);
  if (value.is_string()) {
    context.charge(size * times);
    std::string out;
    out.reserve(size * times);
    for (size_t i = 0; i < times; ++i) out += value.text();
    return Value(std::move(out), value.is_safe());
  }
  context.charge(size * times * sizeof(Value));
  std::vector<Value> out;
  out.reserve(size * times);
  for (size_t i = 0; i < times; ++i) out.insert(out.end(), value.items().begin(), value.items().end());
  return value.is(Kind::list) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

Value join_texts(Context& context, const Value& a, const Value& b) {
  const bool safe = a.is_safe() || b.is_safe();
  std::string out = safe && !a.is_safe() ? escape_html(a.text()) : a.text();
  out += safe && !b.is_safe() ? escape_html(b.text()) : b.text();
  context.charge(out.size());
  return Value(std::move(out), safe);
}

Value add_sequences(Context& context, const Value& a, const Value& b) {
  std::vector<Value> out;
  out.reserve(a.items().size() + b.items().size());
  context.charge(out.capacity() * sizeof(Value));
  out.insert(out.end(), a.items().begin(), a.items().end());
  out.insert(out.end(), b.items().begin(), b.items().end());
  return a.is(Kind::list) ? Value::list(std::move(out)) : Value::tuple(std::move(out));
}

Value add(Context& context, const Value& a, const Value& b) {
  if (a.is_string()) {
    if (b.is_string()) return join_texts(context, a, b);
    type_error("can only concatenate str (not \"" + type_name(b) + "\") to str");
  }
  if (a.is_sequence()) {
    if (a.kind() == b.kind()) return add_sequences(context, a, b);
    type_error("can only concatenate " + type_name(a) + " (not \"" + type_name(b) + "\") to " + type_name(a));
  }
  unsupported(BinaryOperator::add, a, b);
}

}  // namespace

Value binary(Context& context, BinaryOperator op, const Value& a, const Value& b) {
  require_defined(a);
  require_defined(b);
  if (a.is_integral() && b.is_integral()) return integers(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return reals(op, a.real(), b.real());
  if (op == BinaryOperator::add) return add(context, a, b);
  if (op == BinaryOperator::multiply) {
    if ((a.is_string() || a.is_sequence()) && b.is_integral()) return repeat(context, a, b.integer());
    if (a.is_integral() && (b.is_string() || b.is_sequence())) return repeat(context, b, a.integer());
  }
  if (op == BinaryOperator::modulo && a.is_string()) return format_percent(context, a.text(), b);
  unsupported(op, a, b);
}

Value negative(const Value& value) {
  require_defined(value);
  if (value.is(Kind::real)) return -value.real();
  if (!value.is_integral()) type_error("bad operand type for unary -: '" + type_name(value) + "'");
  if (value.integer() == std::numeric_limits<int64_t>::min()) too_large();
  return -value.integer();
}

Value positive(const Value& value) {
  require_defined(value);
  if (value.is(Kind::real)) return value;
  if (!value.is_integral()) type_error("bad operand type for unary +: '" + type_name(value) + "'");
  return value.integer();
}

Value absolute(const Value& value) {
  require_defined(value);
  if (value.is(Kind::real)) return std::fabs(value.real());
  if (!value.is_integral()) type_error("bad operand type for abs(): '" + type_name(value) + "'");
  return value.integer() < 0 ? negative(value) : Value(value.integer());
}

Value concatenate(Context& context, const std::vector<Value>& parts) {
  std::string out;
  for (const Value& part : parts) append_text(context, out, part);
  context.charge(out.size());
  return out;
}

std::string escape_html(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace pacer::text::jinja
