// Evaluation of expressions.
#include "pacer/text/jinja/compare.h"
#include "pacer/text/jinja/failure.h"
#include "pacer/text/jinja/interpreter.h"
#include "pacer/text/jinja/lookup.h"
#include "pacer/text/jinja/repr.h"

namespace pacer::text::jinja {
namespace {

// The method of text or data, called without making a function object first.
Method direct_method(const Value& object, const std::string& name) {
  switch (object.kind()) {
    case Kind::string:
      return find_string_method(name);
    case Kind::dict:
    case Kind::list:
    case Kind::tuple:
      return find_container_method(object.kind(), name);
    default:
      return nullptr;
  }
}

bool compare(Comparison op, const Value& a, const Value& b) {
  std::optional<int> result;
  switch (op) {
    case Comparison::equal:
      return equal(a, b);
    case Comparison::not_equal:
      return !equal(a, b);
    case Comparison::in:
      return contains(b, a);
    case Comparison::not_in:
      return !contains(b, a);
    case Comparison::less:
      result = order(a, b, "<");
      return result && *result < 0;
    case Comparison::less_equal:
      result = order(a, b, "<=");
      return result && *result <= 0;
    case Comparison::greater:
      result = order(a, b, ">");
      return result && *result > 0;
    case Comparison::greater_equal:
      result = order(a, b, ">=");
      return result && *result >= 0;
  }
  return false;
}

// Reading a long text is work, also where nothing is made of it.
void look_at_text(Context& context, const Value& value) {
  constexpr size_t kBytesPerStep = 64;
  if (value.is_string()) context.step(static_cast<int64_t>(value.text().size() / kBytesPerStep));
}

// A comparison may read everything that a value holds.
void look_through(Context& context, const Value& value) {
  look_at_text(context, value);
  if (value.is_sequence()) {
    context.step(static_cast<int64_t>(value.items().size()));
    for (const Value& item : value.items()) look_through(context, item);
  } else if (value.is(Kind::dict)) {
    context.step(static_cast<int64_t>(value.entries().values.size()));
    for (const auto& [key, item] : value.entries().values) look_through(context, item);
  }
}

}  // namespace

std::vector<Value> Interpreter::evaluate_all(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> out;
  out.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) out.push_back(evaluate(*expression));
  return out;
}

Arguments Interpreter::evaluate_operands(const Operands& operands) {
  Arguments out;
  out.positional = evaluate_all(operands.positional);
  const auto put = [&](const std::string& name, Value value) {
    for (const auto& entry : out.named) {
      if (entry.first == name) type_error("got multiple values for keyword argument '" + name + "'");
    }
    out.named.emplace_back(name, std::move(value));
  };
  for (const auto& [name, expression] : operands.named) put(name, evaluate(*expression));
  if (operands.spread) {
    for (Value& value : iterate(evaluate(*operands.spread))) out.positional.push_back(std::move(value));
  }
  if (operands.named_spread) {
    const Value named = evaluate(*operands.named_spread);
    if (!named.is(Kind::dict)) type_error("argument after ** must be a mapping, not " + type_name(named));
    for (const auto& [key, value] : named.entries().values) {
      if (!key.is_string()) type_error("keywords must be strings");
      put(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::evaluate_call(const Call& node, const Place& place, Arguments extra) {
  const auto arguments = [&] {
    Arguments all = evaluate_operands(node.operands);
    for (auto& entry : extra.named) all.named.push_back(std::move(entry));
    context_.place = place;
    return all;
  };
  if (const auto* member = std::get_if<Attribute>(&node.callee->node)) {
    const Value object = evaluate(*member->object);
    if (const Method method = direct_method(object, member->name)) return method(context_, object, arguments());
    context_.place = node.callee->place;
    const Value callee = attribute(context_, object, member->name);
    // A method that does not exist fails before its arguments do, as in Python.
    require_defined(callee);
    return call(context_, callee, arguments());
  }
  const Value callee = evaluate(*node.callee);
  return call(context_, callee, arguments());
}

Value Interpreter::filtered_text(const Expression& filter, std::string text) {
  const std::string* previous = block_text_;
  block_text_ = &text;
  Value value;
  try {
    value = evaluate(filter);
  } catch (...) {
    block_text_ = previous;
    throw;
  }
  block_text_ = previous;
  return value;
}

Value Interpreter::evaluate(const Expression& expression) {
  const Context::Level level(context_);
  context_.step();
  return std::visit([&](const auto& node) { return value_of(node, expression.place); }, expression.node);
}

Value Interpreter::value_of(const Constant& node, const Place&) { return node.value; }

Value Interpreter::value_of(const Name& node, const Place&) { return get(node.symbol); }

Value Interpreter::value_of(const ListOf& node, const Place&) { return Value::list(evaluate_all(node.items)); }

Value Interpreter::value_of(const TupleOf& node, const Place&) { return Value::tuple(evaluate_all(node.items)); }

Value Interpreter::value_of(const DictOf& node, const Place& place) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key_expression, value_expression] : node.items) {
    Value key = evaluate(*key_expression), value = evaluate(*value_expression);
    context_.place = place;
    require_hashable(key);
    bool known = false;
    context_.step(static_cast<int64_t>(entries.size()));
    for (auto& [other, old] : entries) {
      if (!equal(other, key)) continue;
      old = value;
      known = true;
    }
    if (!known) entries.emplace_back(std::move(key), std::move(value));
  }
  return Value::dict(std::move(entries));
}

Value Interpreter::value_of(const Attribute& node, const Place& place) {
  const Value object = evaluate(*node.object);
  context_.place = place;
  look_at_text(context_, object);  // most attributes of a text are methods that read it
  return attribute(context_, object, node.name);
}

Value Interpreter::value_of(const Item& node, const Place& place) {
  const Value object = evaluate(*node.object), key = evaluate(*node.key);
  context_.place = place;
  look_at_text(context_, object);
  return item(context_, object, key);
}

Value Interpreter::value_of(const Slice& node, const Place& place) {
  const Value object = evaluate(*node.object);
  const Value start = evaluate_or_none(node.start), stop = evaluate_or_none(node.stop);
  const Value step = evaluate_or_none(node.step);
  context_.place = place;
  look_at_text(context_, object);
  return slice(context_, object, start, stop, step);
}

Value Interpreter::value_of(const Call& node, const Place& place) { return evaluate_call(node, place, {}); }

Value Interpreter::value_of(const Filtered& node, const Place& place) {
  const Value input = node.input ? evaluate(*node.input) : Value(*block_text_);
  Arguments arguments = evaluate_operands(node.operands);
  context_.place = place;
  look_at_text(context_, input);
  if (node.filter == nullptr) type_error("No filter named '" + node.name + "'.");
  return node.filter(context_, input, std::move(arguments));
}

Value Interpreter::value_of(const Tested& node, const Place& place) {
  const Value input = evaluate(*node.input);
  Arguments arguments = evaluate_operands(node.operands);
  context_.place = place;
  look_at_text(context_, input);
  if (node.predicate == nullptr) type_error("No test named '" + node.name + "'.");
  return node.predicate(context_, input, std::move(arguments)) != node.negated;
}

Value Interpreter::value_of(const Unary& node, const Place& place) {
  const Value operand = evaluate(*node.operand);
  context_.place = place;
  if (node.op == UnaryOperator::logical_not) return !truth(operand);
  return node.op == UnaryOperator::negative ? negative(operand) : positive(operand);
}

Value Interpreter::value_of(const Binary& node, const Place& place) {
  const Value left = evaluate(*node.left), right = evaluate(*node.right);
  context_.place = place;
  return binary(context_, node.op, left, right);
}

Value Interpreter::value_of(const Logical& node, const Place&) {
  Value left = evaluate(*node.left);
  return truth(left) == node.conjunction ? evaluate(*node.right) : left;
}

Value Interpreter::value_of(const Concatenation& node, const Place& place) {
  const std::vector<Value> parts = evaluate_all(node.parts);
  context_.place = place;
  return concatenate(context_, parts);
}

Value Interpreter::value_of(const Compared& node, const Place&) {
  Value left = evaluate(*node.first);
  for (const auto& [op, expression] : node.rest) {
    Value right = evaluate(*expression);
    context_.place = expression->place;
    look_through(context_, left);
    look_through(context_, right);
    if (!compare(op, left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::value_of(const Conditional& node, const Place& place) {
  if (truth(evaluate(*node.condition))) return evaluate(*node.yes);
  if (node.no) return evaluate(*node.no);
  return Value::undefined("the inline if-expression on line " + std::to_string(place.line) +
                          " evaluated to false and no else section was defined.");
}

}  // namespace pacer::text::jinja
