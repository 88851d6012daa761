// The tree of a parsed template.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "pacer/text/jinja/arithmetic.h"
#include "pacer/text/jinja/context.h"
#include "pacer/text/jinja/filters.h"
#include "pacer/text/jinja/predicates.h"
#include "pacer/text/jinja/value.h"

namespace pacer::text::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<const Expression>;
using Body = std::vector<Statement>;

using Symbol = int;  // index into Template::names

struct Operands {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr spread;        // *values, or null
  ExpressionPtr named_spread;  // **values, or null
};

struct Constant {
  Value value;
};
struct Name {
  Symbol symbol;
};
struct ListOf {
  std::vector<ExpressionPtr> items;
};
struct TupleOf {
  std::vector<ExpressionPtr> items;
};
struct DictOf {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, key;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // bounds may be null
};
struct Call {
  ExpressionPtr callee;
  Operands operands;
};
struct Filtered {
  ExpressionPtr input;  // null inside {% filter %} and {% set %} blocks: the captured text
  std::string name;
  Filter filter;  // null: unknown, an error when it runs
  Operands operands;
};
struct Tested {
  ExpressionPtr input;
  std::string name;
  Predicate predicate;
  Operands operands;
  bool negated;
};
enum class UnaryOperator { negative, positive, logical_not };
struct Unary {
  UnaryOperator op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOperator op;
  ExpressionPtr left, right;
};
struct Logical {
  bool conjunction;
  ExpressionPtr left, right;
};
struct Concatenation {
  std::vector<ExpressionPtr> parts;
};
enum class Comparison { equal, not_equal, less, less_equal, greater, greater_equal, in, not_in };
struct Compared {
  ExpressionPtr first;
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
};
struct Conditional {
  ExpressionPtr condition, yes, no;  // no: null gives an undefined value
};

struct Expression {
  Place place;
  std::variant<Constant, Name, ListOf, TupleOf, DictOf, Attribute, Item, Slice, Call, Filtered, Tested, Unary, Binary,
               Logical, Concatenation, Compared, Conditional>
      node;
};

// What {% set %} and {% for %} assign to.
struct Target {
  enum class Kind { name, attribute, tuple } kind = Kind::name;
  Place place;
  Symbol symbol = 0;      // name, or the namespace of an attribute
  std::string attribute;  // of a namespace
  std::vector<Target> items;
};

struct MacroDefinition {
  std::string name;
  std::vector<std::pair<std::string, Symbol>> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Body body;
  // Whether the body mentions these special names; they decide which calls are accepted.
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};

struct Literal {
  std::string text;
};
struct Output {
  std::vector<ExpressionPtr> values;
};
struct If {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr iterable, condition;  // condition may be null
  bool recursive = false;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // may be null
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
  Body body;
};
struct MacroStatement {
  Symbol symbol;
  std::shared_ptr<const MacroDefinition> macro;
};
struct CallBlock {
  ExpressionPtr call;  // a Call
  std::shared_ptr<const MacroDefinition> caller;
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct Generation {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  Place place;
  std::variant<Literal, Output, If, For, Set, SetBlock, With, MacroStatement, CallBlock, FilterBlock, Generation, Break,
               Continue>
      node;
};

struct Template {
  Body body;
  std::vector<std::string> names;  // by Symbol
  std::unordered_map<std::string, Symbol> symbols;
  std::vector<std::string> constructs;
};

}  // namespace pacer::text::jinja
