// Expressions, with the precedence that Jinja's own parser has: -2 ** 2 is 4, and filters bind tighter than any
// operator.
#include <algorithm>
#include <charconv>
#include <optional>

#include "pacer/text/jinja/parser_state.h"

namespace pacer::text::jinja {
namespace {

constexpr int kMaxLinks = 2000;

std::optional<Comparison> comparison_of(const std::string& symbol) {
  if (symbol == "==") return Comparison::equal;
  if (symbol == "!=") return Comparison::not_equal;
  if (symbol == "<") return Comparison::less;
  if (symbol == "<=") return Comparison::less_equal;
  if (symbol == ">") return Comparison::greater;
  if (symbol == ">=") return Comparison::greater_equal;
  return std::nullopt;
}

}  // namespace

void Parser::count_link(int& links) const {
  if (++links > kMaxLinks) fail("more than " + std::to_string(kMaxLinks) + " operators in one expression");
}

ExpressionPtr Parser::expression(bool with_conditional) {
  const Level level(*this);
  return with_conditional ? conditional() : disjunction();
}

ExpressionPtr Parser::conditional() {
  ExpressionPtr value = disjunction();
  int links = 0;
  while (is_name("if")) {
    count_link(links);
    const Place place = next().place;
    ++conditions_;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = skip_name("else") ? expression() : nullptr;
    --conditions_;
    value = make(place, Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }
  return value;
}

ExpressionPtr Parser::disjunction() {
  ExpressionPtr left = conjunction();
  for (int links = 0; is_name("or"); count_link(links)) {
    const Place place = next().place;
    left = make(place, Logical{false, std::move(left), conjunction()});
  }
  return left;
}

ExpressionPtr Parser::conjunction() {
  ExpressionPtr left = negation();
  for (int links = 0; is_name("and"); count_link(links)) {
    const Place place = next().place;
    left = make(place, Logical{true, std::move(left), negation()});
  }
  return left;
}

ExpressionPtr Parser::negation() {
  if (!is_name("not")) return comparison();
  const Level level(*this);
  const Place place = next().place;
  return make(place, Unary{UnaryOperator::logical_not, negation()});
}

ExpressionPtr Parser::comparison() {
  const Place place = current().place;
  ExpressionPtr first = sum();
  std::vector<std::pair<Comparison, ExpressionPtr>> rest;
  for (;;) {
    std::optional<Comparison> op;
    if (current().type == TokenType::symbol) op = comparison_of(current().text);
    if (op) {
      next();
    } else if (skip_name("in")) {
      op = Comparison::in;
    } else if (is_name("not") && ahead().type == TokenType::name && ahead().text == "in") {
      next();
      next();
      op = Comparison::not_in;
    } else {
      break;
    }
    rest.emplace_back(*op, sum());
  }
  if (rest.empty()) return first;
  return make(place, Compared{std::move(first), std::move(rest)});
}

ExpressionPtr Parser::sum() {
  ExpressionPtr left = concatenation();
  for (int links = 0; is_symbol("+") || is_symbol("-"); count_link(links)) {
    const Token op = next();
    left = make(op.place, Binary{op.text == "+" ? BinaryOperator::add : BinaryOperator::subtract, std::move(left),
                                 concatenation()});
  }
  return left;
}

ExpressionPtr Parser::concatenation() {
  const Place place = current().place;
  ExpressionPtr first = product();
  if (!is_symbol("~")) return first;
  std::vector<ExpressionPtr> parts;
  parts.push_back(std::move(first));
  while (skip_symbol("~")) parts.push_back(product());
  return make(place, Concatenation{std::move(parts)});
}

ExpressionPtr Parser::product() {
  ExpressionPtr left = power();
  for (int links = 0;; count_link(links)) {
    std::optional<BinaryOperator> op;
    if (is_symbol("*")) op = BinaryOperator::multiply;
    if (is_symbol("/")) op = BinaryOperator::divide;
    if (is_symbol("//")) op = BinaryOperator::floor_divide;
    if (is_symbol("%")) op = BinaryOperator::modulo;
    if (!op) return left;
    const Place place = next().place;
    left = make(place, Binary{*op, std::move(left), power()});
  }
}

ExpressionPtr Parser::power() {
  ExpressionPtr left = unary();
  for (int links = 0; is_symbol("**"); count_link(links)) {
    const Place place = next().place;
    left = make(place, Binary{BinaryOperator::power, std::move(left), unary()});
  }
  return left;
}

ExpressionPtr Parser::unary(bool with_filter) {
  const Level level(*this);
  ExpressionPtr value;
  if (is_symbol("-") || is_symbol("+")) {
    const Token op = next();
    value = make(op.place, Unary{op.text == "-" ? UnaryOperator::negative : UnaryOperator::positive,
                                 unary(/*with_filter=*/false)});
  } else {
    value = primary();
  }
  value = postfix(std::move(value));
  return with_filter ? filters(std::move(value)) : std::move(value);
}

ExpressionPtr Parser::constant_name(const Token& token) {
  if (token.text == "true" || token.text == "True") return make(token.place, Constant{Value(true)});
  if (token.text == "false" || token.text == "False") return make(token.place, Constant{Value(false)});
  if (token.text == "none" || token.text == "None") return make(token.place, Constant{Value()});
  return nullptr;
}

ExpressionPtr Parser::primary() {
  const Token token = current();
  switch (token.type) {
    case TokenType::name: {
      next();
      if (auto constant = constant_name(token)) return constant;
      for (MacroDefinition* macro : macros_) {
        if (token.text == "caller") macro->uses_caller = true;
        if (token.text == "varargs") macro->uses_varargs = true;
        if (token.text == "kwargs") macro->uses_kwargs = true;
      }
      return make(token.place, Name{symbol(token.text)});
    }
    case TokenType::string: {
      std::string text;
      while (current().type == TokenType::string) text += next().text;
      return make(token.place, Constant{Value(std::move(text))});
    }
    case TokenType::integer: {
      next();
      const bool prefixed = token.text.size() > 2 && token.text[0] == '0';
      const char base = prefixed ? static_cast<char>(token.text[1] | 0x20) : 'd';
      int64_t value = 0;
      const char* begin = token.text.data() + (prefixed && base > '9' ? 2 : 0);
      const char* end = token.text.data() + token.text.size();
      const auto result = std::from_chars(begin, end, value, base == 'x' ? 16 : base == 'o' ? 8 : base == 'b' ? 2 : 10);
      if (result.ec != std::errc() || result.ptr != end) {
        syntax_error(place_, token.place, "the integer " + token.text + " does not fit into 64 bits");
      }
      return make(token.place, Constant{Value(value)});
    }
    case TokenType::real: {
      next();
      double value = 0;
      std::from_chars(token.text.data(), token.text.data() + token.text.size(), value);
      return make(token.place, Constant{Value(value)});
    }
    default:
      if (is_symbol("(")) {
        next();
        ExpressionPtr inner = tuple(/*explicit_parentheses=*/true);
        expect_symbol(")");
        return inner;
      }
      if (is_symbol("[")) return list();
      if (is_symbol("{")) return dict();
      fail("unexpected '" + described(token) + "'");
  }
}

bool Parser::tuple_ends(std::initializer_list<std::string_view> end_names) const {
  if (current().type == TokenType::variable_end || current().type == TokenType::block_end || is_symbol(")"))
    return true;
  return std::any_of(end_names.begin(), end_names.end(), [&](std::string_view name) { return is_name(name); });
}

ExpressionPtr Parser::tuple(bool explicit_parentheses, bool with_conditional,
                            std::initializer_list<std::string_view> end_names) {
  const Place place = current().place;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  for (;;) {
    if (!items.empty()) expect_symbol(",");
    if (tuple_ends(end_names)) break;
    items.push_back(expression(with_conditional));
    if (!is_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items.front());
    if (!explicit_parentheses) fail("Expected an expression, got '" + described(current()) + "'");
  }
  return make(place, TupleOf{std::move(items)});
}

ExpressionPtr Parser::list() {
  const Place place = next().place;
  std::vector<ExpressionPtr> items;
  while (!is_symbol("]")) {
    if (!items.empty()) expect_symbol(",");
    if (is_symbol("]")) break;
    items.push_back(expression());
  }
  expect_symbol("]");
  return make(place, ListOf{std::move(items)});
}

ExpressionPtr Parser::dict() {
  const Place place = next().place;
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  while (!is_symbol("}")) {
    if (!items.empty()) expect_symbol(",");
    if (is_symbol("}")) break;
    ExpressionPtr key = expression();
    expect_symbol(":");
    items.emplace_back(std::move(key), expression());
  }
  expect_symbol("}");
  return make(place, DictOf{std::move(items)});
}

ExpressionPtr Parser::postfix(ExpressionPtr object) {
  for (int links = 0;; count_link(links)) {
    if (is_symbol(".") || is_symbol("[")) {
      object = subscript(std::move(object));
    } else if (is_symbol("(")) {
      object = call(std::move(object));
    } else {
      return object;
    }
  }
}

ExpressionPtr Parser::filters(ExpressionPtr input) {
  for (int links = 0;; count_link(links)) {
    if (is_symbol("|")) {
      input = filter_chain(std::move(input), /*started=*/false);
    } else if (is_name("is")) {
      input = test(std::move(input));
    } else if (is_symbol("(")) {
      input = call(std::move(input));
    } else {
      return input;
    }
  }
}

ExpressionPtr Parser::subscript(ExpressionPtr object) {
  const Place place = current().place;
  if (is_symbol("[")) return bracket(std::move(object));
  next();
  const Token name = next();
  if (name.type == TokenType::name) return make(place, Attribute{std::move(object), name.text});
  if (name.type != TokenType::integer) syntax_error(place_, name.place, "expected name or number");
  int64_t index = 0;
  std::from_chars(name.text.data(), name.text.data() + name.text.size(), index);
  return make(place, Item{std::move(object), make(name.place, Constant{Value(index)})});
}

ExpressionPtr Parser::bracket(ExpressionPtr object) {
  const Place place = next().place;
  const auto bound = [&]() -> ExpressionPtr {
    return is_symbol(":") || is_symbol("]") || is_symbol(",") ? nullptr : expression();
  };
  if (is_symbol("]")) fail("Expected an expression, got ']'");
  ExpressionPtr start = bound();
  if (skip_symbol(":")) {
    ExpressionPtr stop = bound();
    ExpressionPtr step = skip_symbol(":") ? bound() : nullptr;
    if (is_symbol(",")) fail("slices of several dimensions are not supported");
    expect_symbol("]");
    return make(place, Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
  }
  if (is_symbol(",")) {
    if (!start) fail("Expected an expression, got ','");
    std::vector<ExpressionPtr> keys;
    keys.push_back(std::move(start));
    while (skip_symbol(",")) {
      if (is_symbol("]")) break;
      keys.push_back(expression());
    }
    start = make(place, TupleOf{std::move(keys)});
  }
  expect_symbol("]");
  return make(place, Item{std::move(object), std::move(start)});
}

ExpressionPtr Parser::call(ExpressionPtr callee) {
  const Place place = current().place;
  if (const auto* name = std::get_if<Name>(&callee->node)) {
    const std::string& function = names_[static_cast<size_t>(name->symbol)];
    for (const std::string_view known :
         {"namespace", "raise_exception", "strftime_now", "range", "cycler", "joiner", "dict"}) {
      if (function == known) constructs_.insert(function);
    }
  }
  return make(place, Call{std::move(callee), operands()});
}

Operands Parser::operands() {
  expect_symbol("(");
  Operands out;
  bool first = true;
  while (!is_symbol(")")) {
    if (!first) {
      expect_symbol(",");
      if (is_symbol(")")) break;
    }
    first = false;
    if (skip_symbol("*")) {
      if (out.spread || out.named_spread) fail("invalid syntax for function call expression");
      out.spread = expression();
    } else if (skip_symbol("**")) {
      if (out.named_spread) fail("invalid syntax for function call expression");
      out.named_spread = expression();
    } else if (current().type == TokenType::name && ahead().type == TokenType::symbol && ahead().text == "=") {
      if (out.named_spread) fail("invalid syntax for function call expression");
      const std::string name = next().text;
      next();
      out.named.emplace_back(name, expression());
    } else {
      if (out.spread || out.named_spread || !out.named.empty()) fail("invalid syntax for function call expression");
      out.positional.push_back(expression());
    }
  }
  expect_symbol(")");
  return out;
}

ExpressionPtr Parser::filter_chain(ExpressionPtr input, bool started) {
  for (int links = 0; started || is_symbol("|"); count_link(links)) {
    if (!started) next();
    started = false;
    const Place place = current().place;
    std::string name = expect_any_name();
    while (skip_symbol(".")) name += "." + expect_any_name();
    const Filter filter = find_filter(name);
    if (filter == nullptr && conditions_ == 0) syntax_error(place_, place, "No filter named '" + name + "'.");
    constructs_.insert(name);
    Operands given;
    if (is_symbol("(")) given = operands();
    input = make(place, Filtered{std::move(input), name, filter, std::move(given)});
  }
  return input;
}

ExpressionPtr Parser::test(ExpressionPtr input) {
  next();
  const bool negated = skip_name("not");
  const Place place = current().place;
  std::string name = expect_any_name();
  while (skip_symbol(".")) name += "." + expect_any_name();
  const Predicate predicate = find_predicate(name);
  if (predicate == nullptr && conditions_ == 0) syntax_error(place_, place, "No test named '" + name + "'.");
  constructs_.insert(name);
  Operands given;
  const TokenType type = current().type;
  const bool literal = type == TokenType::string || type == TokenType::integer || type == TokenType::real ||
                       is_symbol("[") || is_symbol("{");
  if (is_symbol("(")) {
    given = operands();
  } else if (literal || (type == TokenType::name && !is_name("else") && !is_name("or") && !is_name("and"))) {
    if (is_name("is")) fail("You cannot chain multiple tests with is");
    given.positional.push_back(postfix(primary()));
  }
  return make(place, Tested{std::move(input), name, predicate, std::move(given), negated});
}

}  // namespace pacer::text::jinja
