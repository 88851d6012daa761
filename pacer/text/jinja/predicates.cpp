#include "pacer/text/jinja/predicates.h"

#include "pacer/text/jinja/arithmetic.h"
#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/filters.h"
#include "pacer/text/jinja/parameters.h"
#include "pacer/text/jinja/repr.h"
#include "pacer/text/jinja/unicode.h"

namespace pacer::text::jinja {
namespace {

Value only(Arguments arguments, const char* name) {
  return Parameters(name, std::move(arguments), {"other"}, 1).get(0);
}

template <Kind K>
bool of_kind(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("test", std::move(arguments), {});
  return value.is(K);
}

template <bool Wanted>
bool boolean_is(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("test", std::move(arguments), {});
  return value.is(Kind::boolean) && value.boolean() == Wanted;
}

template <int64_t Wanted>
bool parity(Context& context, const Value& value, Arguments arguments) {
  const Parameters parameters("test", std::move(arguments), {});
  return equal(binary(context, BinaryOperator::modulo, value, Value(2)), Value(Wanted));
}

bool divisible(Context& context, const Value& value, Arguments arguments) {
  return equal(binary(context, BinaryOperator::modulo, value, only(std::move(arguments), "divisibleby")), Value(0));
}

bool defined(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("defined", std::move(arguments), {});
  return !value.is_undefined();
}

bool number(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("number", std::move(arguments), {});
  return value.is_number();
}

bool sequence(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("sequence", std::move(arguments), {});
  switch (value.kind()) {
    case Kind::string:
    case Kind::list:
    case Kind::tuple:
    case Kind::dict:
      return true;
    case Kind::object:
      return value.object().indexable();
    case Kind::undefined:  // has a length and can be indexed, if only to fail
      return !value.missing().forbidden;
    default:
      return false;
  }
}

bool iterable(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("iterable", std::move(arguments), {});
  return is_iterable(value);
}

bool callable(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("callable", std::move(arguments), {});
  return value.is(Kind::object) && value.object().callable();
}

bool escaped(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("escaped", std::move(arguments), {});
  return value.is_safe();
}

template <bool Upper>
bool cased(Context& context, const Value& value, Arguments arguments) {
  const Parameters parameters("test", std::move(arguments), {});
  return has_case(to_text(context, value), Upper);
}

bool same(Context&, const Value& value, Arguments arguments) {
  return identical(value, only(std::move(arguments), "sameas"));
}

bool inside(Context&, const Value& value, Arguments arguments) {
  return contains(only(std::move(arguments), "in"), value);
}

bool equals(Context&, const Value& value, Arguments arguments) {
  return equal(value, only(std::move(arguments), "eq"));
}

bool differs(Context&, const Value& value, Arguments arguments) {
  return !equal(value, only(std::move(arguments), "ne"));
}

bool greater(Context&, const Value& value, Arguments arguments) {
  const auto result = order(value, only(std::move(arguments), "gt"), ">");
  return result && *result > 0;
}

bool at_least(Context&, const Value& value, Arguments arguments) {
  const auto result = order(value, only(std::move(arguments), "ge"), ">=");
  return result && *result >= 0;
}

bool less(Context&, const Value& value, Arguments arguments) {
  const auto result = order(value, only(std::move(arguments), "lt"), "<");
  return result && *result < 0;
}

bool at_most(Context&, const Value& value, Arguments arguments) {
  const auto result = order(value, only(std::move(arguments), "le"), "<=");
  return result && *result <= 0;
}

bool names_filter(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("filter", std::move(arguments), {});
  return value.is_string() && find_filter(value.text()) != nullptr;
}

bool names_test(Context&, const Value& value, Arguments arguments) {
  const Parameters parameters("test", std::move(arguments), {});
  return value.is_string() && find_predicate(value.text()) != nullptr;
}

struct Named {
  std::string_view name;
  Predicate predicate;
};

constexpr Named kPredicates[] = {
    {"!=", differs},
    {"<", less},
    {"<=", at_most},
    {"==", equals},
    {">", greater},
    {">=", at_least},
    {"boolean", of_kind<Kind::boolean>},
    {"callable", callable},
    {"defined", defined},
    {"divisibleby", divisible},
    {"eq", equals},
    {"equalto", equals},
    {"escaped", escaped},
    {"even", parity<0>},
    {"false", boolean_is<false>},
    {"filter", names_filter},
    {"float", of_kind<Kind::real>},
    {"ge", at_least},
    {"greaterthan", greater},
    {"gt", greater},
    {"in", inside},
    {"integer", of_kind<Kind::integer>},
    {"iterable", iterable},
    {"le", at_most},
    {"lessthan", less},
    {"lower", cased<false>},
    {"lt", less},
    {"mapping", of_kind<Kind::dict>},
    {"ne", differs},
    {"none", of_kind<Kind::none>},
    {"number", number},
    {"odd", parity<1>},
    {"sameas", same},
    {"sequence", sequence},
    {"string", of_kind<Kind::string>},
    {"test", names_test},
    {"true", boolean_is<true>},
    {"undefined", of_kind<Kind::undefined>},
    {"upper", cased<true>},
};

}  // namespace

Predicate find_predicate(std::string_view name) {
  for (const Named& entry : kPredicates) {
    if (entry.name == name) return entry.predicate;
  }
  return nullptr;
}

}  // namespace pacer::text::jinja
